"""Administration of tags, shard numbers, and what doctor says of tags, on real redis-servers."""

import time
from pathlib import Path
from typing import Any

import pytest

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.monitor.conditions import Condition
from snowredis.monitor.doctor import check_tags
from snowredis.numbers import (
    DatedGenerator,
    NumbersClosed,
    NumbersExhausted,
    create_tag,
    delete_tag,
    open_tag,
    show_tag,
    take_shard_number,
)
from snowredis.numbers.formats import Calendar
from snowredis.numbers.segments import open_generator
from snowredis.numbers.stores import FORMAT, tag_keys
from tests.support.servers import RedisServer


def numbers(url: Any, tag: str, count: int) -> list[int]:
    with open_generator(url, tag=tag, step=1, max_step=1) as ids:
        return [ids.next_id() for _ in range(count)]


def test_a_tag_is_created_once_shown_and_deleted(server: RedisServer, tag: str) -> None:
    url = server.url
    assert show_tag(url, tag) is None
    create_tag(url, tag, maximum=5000)
    with pytest.raises(ConfigError, match=f"the tag '{tag}' is not new"):
        create_tag(url, tag)
    assert numbers(url, tag, 5) == [1, 2, 3, 4, 5]
    info = show_tag(url, tag)
    assert info is not None
    assert (info.state, info.reason, info.maximum) == ("open", None, 5000)
    assert open_tag(url, tag, 1000) == 1000
    for first in (5001, 2.5, "7"):
        with pytest.raises(ConfigError, match=f"{first!r} is not a number up to the maximum 5000 of the tag"):
            open_tag(url, tag, first)  # type: ignore[arg-type]
    assert numbers(url, tag, 1) == [1000]
    assert delete_tag(url, tag)
    assert not delete_tag(url, tag)
    with pytest.raises(ConfigError, match="does not know the tag"):
        open_tag(url, tag, 5)


def test_a_tag_of_another_version_is_refused_by_name(server: RedisServer, tag: str) -> None:
    create_tag(server.url, tag)
    key = tag_keys(tag)[0]
    for other in ("period=ever", "format=4 start=1 maximum=99", "format=9 period=ever"):
        server.client().hset(key, "signature", other)
        with (
            open_generator(server.url, tag=tag) as ids,
            pytest.raises(ConfigError, match=rf"this version .* reads format {FORMAT}\. Nothing was changed"),
        ):
            ids.next_id()
        with pytest.raises(ConfigError, match="of another version"):
            open_tag(server.url, tag, 500)
    assert delete_tag(server.url, tag)


def test_what_is_said_of_a_period_is_not_applied_to_the_next_one(server: RedisServer, tag: str) -> None:
    yesterday = Calendar("day", "UTC").at(int(time.time() * 1000) - 86_400_000).label
    create_tag(server.url, tag, period="day", maximum=302)
    with DatedGenerator(tag, server.url) as ids:
        with pytest.raises(ConfigError, match=f"the current period of the tag .*, not {yesterday}. Nothing was opened"):
            open_tag(server.url, tag, 301, yesterday)
        assert ids.next_id().endswith("-000001")
        today = Calendar("day", "UTC").at(int(time.time() * 1000)).label
        assert open_tag(server.url, tag, 301, today) == 301
        assert ids.next_id().endswith("-000301")
        info = show_tag(server.url, tag)
        assert info is not None
        assert (info.period, info.next_number, info.settings["zone"]) == (today, 302, "UTC")
        with pytest.raises(ConfigError, match="5000000 is not a number up to the maximum 302"):
            open_tag(server.url, tag, 5_000_000)
        # processes do not repeat the maximum
        assert ids.next_id().endswith("-000302")
        with pytest.raises(NumbersExhausted, match="up to its maximum 302"):
            ids.next_id()
    with pytest.raises(ConfigError, match="unknown setting 'step' of tags"):
        create_tag(server.url, tag, step=5)


def test_doctor_says_which_tags_are_closed_and_what_a_crash_would_lose(own_server: RedisServer) -> None:
    url, client = own_server.url, own_server.client()

    def check() -> Condition:
        return check_tags(client)

    assert check().level == "ok"
    create_tag(url, "d", maximum=1000)
    create_tag(url, "e", period="day")
    found = check()
    assert (found.level, "2 tags of numbers, and no append-only file" in found.text) == ("warning", True)
    # a setting that exists
    assert "--durability assured" in found.advice
    client.config_set("appendonly", "yes")
    assert check().level == "ok"
    client.hset(tag_keys("d")[0], "identity", "0")
    numbers_closed = open_generator(url, tag="d")
    with pytest.raises(NumbersClosed):
        numbers_closed.next_id()
    assert "d (Redis was restarted" in check().text
    assert open_tag(url, "d", 50) == 50
    assert check().level == "ok"
    client.hset(tag_keys("d")[0], "stride", "x")
    client.set(tag_keys("f")[0], "of another program")
    assert all(f"{tag} (not readable: " in check().text for tag in "df")
    # none is left out
    for number in range(100):
        create_tag(url, f"a{number}")
    assert all(f"{tag} (not readable: " in check().text for tag in "df")


@pytest.mark.parametrize("refused", ["hset", "hmget", "hgetall", "time"])
def test_a_user_who_lacks_a_right_destroys_nothing(server: RedisServer, tag: str, refused: str) -> None:
    create_tag(server.url, tag)
    used = numbers(server.url, tag, 6)
    client = server.client()
    before = client.hgetall(tag_keys(tag)[0])
    rights: Any = {"keys": ["*"], "categories": ["+@all"], "commands": [f"-{refused}"]}
    client.acl_setuser("clerk", enabled=True, passwords=["+pw"], **rights)
    url = f"{server.url}?username=clerk&password=pw"
    if refused != "hgetall":
        with pytest.raises(StoreUnavailable):
            open_tag(url, tag, 1000)
        with pytest.raises(StoreUnavailable):
            numbers(url, tag, 1)
    with pytest.raises((StoreUnavailable, ConfigError)):
        create_tag(url, tag)
    client.acl_deluser("clerk")
    assert before.items() <= client.hgetall(tag_keys(tag)[0]).items() or refused == "hgetall"
    assert not set(numbers(server.url, tag, 6)) & set(used)


def test_each_command_is_about_one_server_that_replies(server: RedisServer, tmp_path: Path, tag: str) -> None:
    away: Any = f"unix://{tmp_path}/nobody.sock"
    for administer in (create_tag, delete_tag, show_tag, lambda url, tag: open_tag(url, tag, 5)):
        with pytest.raises(ConfigError, match="one server at a time"):
            administer([server.url, away], tag)  # type: ignore[arg-type]
        with pytest.raises(StoreUnavailable):
            administer(away, tag)


def test_shard_numbers_are_of_one_place_in_ids_and_come_once(server: RedisServer, tag: str) -> None:
    layout = resolve_layout("game-shards")
    with pytest.raises(NumbersClosed):
        take_shard_number(server.url, layout, tag)
    create_tag(server.url, tag, layout=layout, maximum=3)
    assert [take_shard_number(server.url, layout, tag) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(NumbersExhausted):
        take_shard_number(server.url, layout, tag)
    with pytest.raises(ConfigError, match="datacenter is"):
        take_shard_number(server.url, resolve_layout("twitter"), tag)
    with pytest.raises(ConfigError, match="has no datacenter bits"):
        take_shard_number(server.url, resolve_layout("default"), tag)
    server.client().hset(tag_keys(tag)[0], "identity", "0")
    with pytest.raises(NumbersClosed, match="open the tag beyond it"):
        take_shard_number(server.url, layout, tag)
