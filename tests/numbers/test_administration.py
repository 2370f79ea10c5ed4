"""Administration of tags, and what doctor says of them, on real redis-servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snowredis.errors import ConfigError, SnowredisError, StoreRefused, StoreUnavailable
from snowredis.monitor.conditions import Condition
from snowredis.monitor.doctor import check_tags
from snowredis.numbers import (
    DatedGenerator,
    NumbersClosed,
    NumbersDiffer,
    NumbersExhausted,
    change_tag,
    create_tag,
    delete_tag,
    open_tag,
    show_tag,
)
from snowredis.numbers.segments import open_generator
from snowredis.numbers.settings import TagConfig
from snowredis.numbers.stores import tag_keys
from tests.support.servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with (
        redis_server(tmp_path_factory.mktemp("a")) as one,
        redis_server(tmp_path_factory.mktemp("b")) as two,
        redis_server(tmp_path_factory.mktemp("c")) as three,
    ):
        yield [one, two, three]


def numbers(url: str | list[str], tag: str, count: int, **settings: Any) -> list[int]:
    with open_generator(url, tag=tag, step=3, max_step=3, **settings) as ids:
        return [ids.next_id() for _ in range(count)]


def stored(server: RedisServer, tag: str) -> Any:
    return server.client().hgetall(tag_keys(tag)[0])


def test_a_tag_is_created_once_shown_and_deleted(servers: list[RedisServer], tag: str) -> None:
    url = servers[0].url
    assert show_tag(url, tag) is None
    create_tag(url, tag, start=1)
    with pytest.raises(ConfigError, match=f"the tag '{tag}' is not new"):
        create_tag(url, tag)
    with pytest.raises(NumbersDiffer, match="maximum is 9223372036854775807 in the tag, 99 here"):
        create_tag(url, tag, maximum=99)
    assert numbers(url, tag, 5) == [1, 2, 3, 4, 5]
    info = show_tag(url, tag)
    assert (info.reason, info.alarm, info.clients) == (None, None, 1)
    assert info.next_number == 1 + info.handed_out
    assert open_tag(url, tag, 1000) == 1000
    assert numbers(url, tag, 1) == [1000]
    assert delete_tag(url, tag)
    assert not delete_tag(url, tag)


def test_doctor_says_which_tags_are_closed_and_what_a_crash_would_lose(own_server: RedisServer) -> None:
    url, client = own_server.url, own_server.client()

    def check() -> Condition:
        return next(check_tags(client, None))

    assert check().level == "ok"
    create_tag(url, "d", maximum=1000)
    found = check()
    assert (found.level, "no append-only file" in found.text) == ("warning", True)
    # a setting that exists
    assert "durability=assured" in found.advice
    client.config_set("appendonly", "yes")
    assert check().level == "ok"
    client.config_set("appendonly", "no")
    client.hset("snowredis:segment:{d}", "alarm", "1 2 1700000000000")
    assert "handed out twice: d 2 to 2" in check().text
    client.hset("snowredis:segment:{d}", mapping={"reason": "other-server", "closed_at": "1"})
    # that a tag is closed does not hide its alarm
    assert "d (Redis was restarted" in check().text
    assert "handed out twice: d 2 to 2" in check().text
    assert open_tag(url, "d", 50) == 50
    # nor does a change
    change_tag(url, "d", maximum=2000)
    assert "handed out twice: d 2 to 2" in check().text
    delete_tag(url, "d")


# --- change -------------------------------------------------------------------------------------------


def test_a_change_goes_on_with_the_numbers_and_keeps_what_it_does_not_name(
    servers: list[RedisServer], tag: str
) -> None:
    url = servers[0].url
    create_tag(url, tag, start=100, maximum=200, durability="assured", failover_slack=1.5, share="2/3")
    before = TagConfig(tag=tag, start=100, maximum=200, durability="assured", failover_slack_ms=1500, share=(1, 3))
    assert show_tag(url, tag).config == before
    assert change_tag(url, tag, maximum=900) == 101
    assert change_tag(url, tag, durability="detect", failover_slack=0) == 101
    changed = TagConfig(tag=tag, start=100, maximum=900, share=(1, 3))
    assert show_tag(url, tag).config == changed
    # it is not closed for an identity that was not stored
    assert show_tag(url, tag).reason is None


def test_processes_use_up_what_they_have_and_no_number_comes_twice_over_a_change(
    servers: list[RedisServer], tag: str
) -> None:
    url = servers[0].url
    create_tag(url, tag, maximum=6)
    with open_generator(url, tag=tag, maximum=6, step=6, max_step=6, prefetch=False) as living:
        used = living.next_ids(2)
        assert change_tag(url, tag, maximum=20) == 7
        used += living.next_ids(4)
        with pytest.raises(NumbersDiffer, match="maximum is 20 in the tag, 6 here"):
            living.next_id()
    used += numbers(url, tag, 14, maximum=20)
    assert used == list(range(1, 21))
    with open_generator(url, tag=tag, maximum=20) as ids, pytest.raises(NumbersExhausted):
        ids.next_id()


@pytest.mark.parametrize(
    "settings",
    [
        {"maximum": 3},
        {"maximum": 2**63},
        {"maximum": -1},
        {"maximum": "many"},
        {"durability": "none"},
        {"failover_slack": -1.0},
        {"failover_slack": 1e9},
    ],
    ids=str,
)
def test_a_change_that_is_impossible_leaves_the_tag_open(
    servers: list[RedisServer], tag: str, settings: dict[str, Any]
) -> None:
    server = servers[0]
    create_tag(server.url, tag, maximum=100)
    used = numbers(server.url, tag, 6, maximum=100)
    before = stored(server, tag)
    with pytest.raises(SnowredisError):
        change_tag(server.url, tag, **settings)
    after = stored(server, tag)
    assert {name: after[name] for name in before if name != "last"} == {
        name: value for name, value in before.items() if name != "last"
    }
    assert min(numbers(server.url, tag, 3, maximum=100)) > max(used)


def test_a_closed_tag_is_not_changed(own_server: RedisServer, tag: str) -> None:
    create_tag(own_server.url, tag)
    used = numbers(own_server.url, tag, 5)
    own_server.save()
    used += numbers(own_server.url, tag, 300)
    own_server.restart()
    for _ in range(2):
        with pytest.raises(NumbersClosed, match="restarted, failed over or replaced"):
            change_tag(own_server.url, tag, maximum=10**6)
    open_tag(own_server.url, tag, max(used) + 1)
    assert change_tag(own_server.url, tag, maximum=10**6) > max(used)


@pytest.mark.parametrize("refused", ["hdel", "del", "hset", "hincrby", "xadd", "zadd", "zrem"])
def test_a_user_who_lacks_a_right_destroys_nothing(servers: list[RedisServer], tag: str, refused: str) -> None:
    server = servers[0]
    create_tag(server.url, tag)
    used = numbers(server.url, tag, 6)
    before = stored(server, tag)
    server.client().acl_setuser(
        "clerk", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"], commands=[f"-{refused}"]
    )
    url = f"{server.url}?username=clerk&password=pw"
    try:
        change_tag(url, tag, maximum=1000)
        settings = {"maximum": 1000}
    except StoreRefused:
        settings = {}
    after = stored(server, tag)
    assert before.keys() <= after.keys()
    assert after["next"] == before["next"]
    assert not set(numbers(server.url, tag, 6, **settings)) & set(used)


def test_of_two_changes_at_once_each_is_whole(servers: list[RedisServer], tag: str) -> None:
    url = servers[0].url
    create_tag(url, tag)
    failed: list[Exception] = []

    def change(maximum: int) -> None:
        try:
            change_tag(url, tag, maximum=maximum)
        except NumbersDiffer as error:
            failed.append(error)

    threads = [threading.Thread(target=change, args=(10**6 + number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) < 6
    info = show_tag(url, tag)
    assert info.config is not None
    assert info.config.maximum in range(10**6, 10**6 + 6)
    assert info.reason is None


# --- several servers ----------------------------------------------------------------------------------


def test_a_command_is_about_one_server(servers: list[RedisServer], tag: str) -> None:
    urls: Any = [server.url for server in servers]
    for administer in (create_tag, change_tag, delete_tag, show_tag, lambda url, tag: open_tag(url, tag, 5)):
        with pytest.raises(ConfigError, match="one server at a time"):
            administer(urls, tag)
    for text in ("3/2", "0/2", "2", "1/2/3", "a/b", "1/0"):
        with pytest.raises(ConfigError, match="share must be K/N, such as 1/2"):
            create_tag(urls[0], tag, share=text)
    assert not show_tag(urls[0], tag)


def test_a_share_of_its_own_is_fixed_on_each_server(servers: list[RedisServer], tag: str) -> None:
    urls = [server.url for server in servers[:2]]
    for share, url in zip(("1/2", "2/2"), urls, strict=True):
        create_tag(url, tag, share=share)
    used = numbers(urls, tag, 40)
    # creating it again makes it no other share
    with pytest.raises(NumbersDiffer, match="share is 2/2 in the tag, 1/2 here"):
        create_tag(urls[1], tag, share="1/2")
    for _ in range(2):
        # one server only, and again: the other one keeps its constants, and no number comes twice
        change_tag(urls[0], tag, maximum=10**9)
        with open_generator(urls, tag=tag, maximum=10**9, step=1, max_step=1) as ids, pytest.raises(NumbersDiffer):
            ids.next_ids(5)
    change_tag(urls[1], tag, maximum=10**9)
    used += numbers(urls, tag, 40, maximum=10**9)
    assert len(set(used)) == len(used)


def test_another_number_of_servers_is_another_tag_above_the_first(servers: list[RedisServer], tag: str) -> None:
    urls, new = [server.url for server in servers], f"{tag}-3"
    for share, url in zip(("1/2", "2/2"), urls, strict=False):
        create_tag(url, tag, share=share)
    used = numbers(urls[:2], tag, 50)
    most = 1000
    assert max(show_tag(url, tag).next_number for url in urls[:2]) < most
    for url in urls[:2]:
        # refused if the tag has handed out more
        with pytest.raises(NumbersExhausted):
            change_tag(url, tag, maximum=10)
        change_tag(url, tag, maximum=most)
    for share, url in zip(("1/3", "2/3", "3/3"), urls, strict=True):
        create_tag(url, new, start=most + 1, share=share)
    with open_generator(urls[:2], tag=tag, maximum=most) as ids:
        used += ids.next_ids(900)
        with pytest.raises(NumbersExhausted):
            ids.next_ids(100)
    used += numbers(urls, new, 60, start=most + 1)
    assert len(set(used)) == len(used)


# --- what Redis holds ---------------------------------------------------------------------------------


def test_a_copy_in_another_database_hands_out_nothing(own_server: RedisServer, tag: str) -> None:
    url, client = own_server.url, own_server.client()
    other = f"{url}?db=1"
    create_tag(url, tag)
    numbers(url, tag, 5)
    with DatedGenerator(tag, url, period="year") as dated:
        dated.create()
        dated.next_id()
    for key in client.keys("*"):
        client.execute_command("COPY", key, key, "DB", 1)
    with open_generator(other, tag=tag) as ids, pytest.raises(NumbersClosed, match="copied from another database"):
        ids.next_id()
    with DatedGenerator(tag, other, period="year") as dated, pytest.raises(NumbersClosed, match="another database"):
        dated.next_id()
    # the original goes on
    assert numbers(url, tag, 1) == [7]


def test_a_server_that_does_not_reply_is_an_error(tmp_path: Path, tag: str) -> None:
    away = f"unix://{tmp_path}/nobody.sock"
    for administer in (create_tag, delete_tag, show_tag, change_tag):
        with pytest.raises(StoreUnavailable):
            administer(away, tag)
