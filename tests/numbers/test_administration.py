"""Administration of tags, and what doctor says of them, on real redis-servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.monitor.checks import Finding
from snowredis.monitor.number_checks import check_tags
from snowredis.numbers import NumbersDiffer
from snowredis.numbers.administration import change_tag, create_tag, delete_tag, open_tag, show_tag
from snowredis.numbers.fetcher import TagClient
from snowredis.numbers.opening import open_generator
from snowredis.numbers.protocol import Closed, ClosedReason, NotNew, Opened, OpenRequest, TagConfig
from snowredis.numbers.stores import RedisTagStore
from tests.support.servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with (
        redis_server(tmp_path_factory.mktemp("a")) as one,
        redis_server(tmp_path_factory.mktemp("b")) as two,
        redis_server(tmp_path_factory.mktemp("c")) as three,
    ):
        yield [one, two, three]


def numbers(url: str | list[str], tag: str, count: int) -> list[int]:
    with open_generator(url, tag=tag, step=3, max_step=3) as ids:
        return [ids.next_id() for _ in range(count)]


def test_a_tag_is_created_once_shown_and_deleted(servers: list[RedisServer]) -> None:
    url = servers[0].url
    assert not show_tag(url, "a")[0].exists
    create_tag(url, "a", start=1)
    with pytest.raises(ConfigError, match="the tag 'a' is not new"):
        create_tag(url, "a")
    with pytest.raises(NumbersDiffer, match="maximum is 9223372036854775807 in the tag, 99 here"):
        create_tag(url, "a", maximum=99)
    assert numbers(url, "a", 5) == [1, 2, 3, 4, 5]
    info = show_tag(url, "a")[0]
    assert (info.exists, info.reason, info.alarm, info.clients) == (True, None, None, 1)
    assert info.next_number == 1 + info.handed_out
    assert open_tag(url, "a", 1000) == 1000
    assert numbers(url, "a", 1) == [1000]
    with pytest.raises(ConfigError, match="from 0 to"):
        open_tag(url, "a", -5)
    assert delete_tag(url, "a")
    assert not delete_tag(url, "a")


def test_doctor_says_which_tags_are_closed_and_what_a_crash_would_lose(servers: list[RedisServer]) -> None:
    url, client = servers[2].url, servers[2].client()

    def check() -> Finding:
        return next(check_tags(client, None))

    assert check().severity == "ok"
    create_tag(url, "d", maximum=1000)
    found = check()
    assert (found.severity, "no append-only file" in found.text) == ("warning", True)
    client.config_set("appendonly", "yes")
    assert check().severity == "ok"
    client.config_set("appendonly", "no")
    client.hset("snowredis:segment:{d}", "alarm", "1 2 3")
    assert "handed out twice: d" in check().text
    client.hset("snowredis:segment:{d}", "reason", "other-server")
    assert "d (other-server)" in check().text
    client.hset("snowredis:segment:{d}", "closed_at", "1")
    assert open_tag(url, "d", 50) == 50
    delete_tag(url, "d")


def test_a_server_is_added_and_no_number_comes_twice(servers: list[RedisServer]) -> None:
    urls = [server.url for server in servers]
    create_tag(urls[:2], "grow")
    with open_generator(urls[:2], tag="grow", step=5, max_step=5) as living:
        used = living.next_ids(20) + numbers(urls[:2], "grow", 20)
        first = change_tag(urls[:2], urls, "grow")
        assert first > max(used)
        # what it has stays its own; for more it needs the new list
        with pytest.raises(NumbersDiffer):
            used += living.next_ids(20)
        new = numbers(urls, "grow", 60)
    assert {number % 3 for number in new} == {0, 1, 2}
    assert min(new) >= first
    assert len(set(used + new)) == len(used + new)
    # again, and with a server that is not in the list: its numbers are not known
    assert change_tag(urls, urls, "grow") > max(new)
    with pytest.raises(NumbersDiffer, match=r"place in the list of servers is . of 3 in the tag, . of 2 here"):
        numbers(urls[:2], "grow", 1)


@pytest.mark.parametrize("closed_before", [False, True], ids=["open", "closed"])
def test_no_program_opens_a_tag_that_was_moved_to_another_server(
    servers: list[RedisServer], closed_before: bool
) -> None:
    tag = f"move-{closed_before}"
    create_tag(servers[0].url, tag)
    used = numbers(servers[0].url, tag, 7)
    old = RedisTagStore(servers[0].url, TagConfig(tag=tag))
    client = TagClient(old, lambda: "ab", lambda: '{"host":"h"}', 50)
    if closed_before:
        reply = client.ask(1)
        assert isinstance(reply, Closed)
        assert reply.reason is ClosedReason.ROLLED_BACK
        with pytest.raises(ConfigError, match="may have forgotten numbers of the tag"):
            change_tag(servers[0].url, servers[1].url, tag)
    word = 60 if closed_before else None
    assert change_tag(servers[0].url, servers[1].url, tag, first=word) > max(used)
    by_program = OpenRequest("bound", 100, 0)
    assert isinstance(old.open(by_program), NotNew)
    assert isinstance(client.ask(1), Closed)
    # a person moves it back
    assert change_tag(servers[1].url, servers[0].url, tag) > max(used)
    assert isinstance(old.open(by_program), Opened)
    old.close()


def test_a_range_that_is_used_up_is_made_longer_and_no_number_comes_twice(
    servers: list[RedisServer],
) -> None:
    url = servers[0].url
    create_tag(url, "short", maximum=6)
    with open_generator(url, tag="short", maximum=6, step=6, max_step=6) as ids:
        assert ids.next_ids(6) == [1, 2, 3, 4, 5, 6]
        assert ids.status.next_number == 7
    assert show_tag(url, "short")[0].next_number == 7
    assert change_tag(url, url, "short", maximum=20) >= 7
    with open_generator(url, tag="short", maximum=20, step=2) as ids:
        assert ids.next_id() >= 7
    delete_tag(url, "short")


def test_a_change_needs_a_word_if_a_server_does_not_know_what_it_handed_out(
    servers: list[RedisServer], tmp_path: Path
) -> None:
    urls = [server.url for server in servers]
    create_tag(urls[:2], "lost")
    used = numbers(urls[:2], "lost", 30)
    delete_tag(urls[1], "lost")
    with pytest.raises(ConfigError, match="does not know the tag 'lost'"):
        change_tag(urls[:2], urls[:1], "lost")
    away = f"unix://{tmp_path}/nobody.sock"
    with pytest.raises(StoreUnavailable):
        change_tag([urls[0], away], urls[:1], "lost")
    assert change_tag([urls[0], away], urls[:1], "lost", first=5000) >= 5000
    assert min(numbers(urls[0], "lost", 3)) > max(used)
