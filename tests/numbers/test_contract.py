"""Contract of the store of a tag on a real redis-server, and what the store in memory does of it."""

from typing import Any

import pytest

from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.numbers import create_tag
from snowredis.numbers import protocol as replies
from snowredis.numbers.protocol import OpenRequest, TakeRequest
from snowredis.numbers.stores import MemoryTag, RedisTag, tag_keys
from tests.support.servers import RedisServer


@pytest.fixture
def store(server: RedisServer, tag: str) -> Any:
    return RedisTag(server.url, tag)


def created(store: Any, **constants: Any) -> Any:
    assert isinstance(store.send(OpenRequest("create", **constants)), replies.Opened)
    return store


def taken(store: Any, wanted: int = 1, seen: int = 0) -> Any:
    reply = store.send(TakeRequest(wanted=wanted, seen=seen))
    return list(reply.numbers) if isinstance(reply, replies.GrantedNumbers) else reply


@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_numbers_follow_each_other_whoever_asks(store: Any, kind: str) -> None:
    store = created(store if kind == "redis" else MemoryTag("t", lambda: 1_000_000))
    assert [taken(store, count) for count in (3, 1, 2)] == [[1, 2, 3], [4], [5, 6]]
    reply = store.send(TakeRequest(wanted=9, highest=8))
    assert (list(reply.numbers), reply.left) == ([7, 8], 0)
    assert isinstance(store.send(TakeRequest(wanted=9, least=2, highest=9)), replies.Exhausted)
    assert taken(store) == [9]


def test_a_restart_does_not_close_a_tag_that_is_assured(own_server: RedisServer, tag: str) -> None:
    store = created(RedisTag(own_server.url, tag), durability="assured")
    assert taken(store) == [1]
    own_server.save()
    own_server.restart()
    store.reconnect()
    assert taken(store) == [2]


@pytest.mark.parametrize("field", ["next", "stride", "closed_until", "losses", "slack_ms"])
def test_a_value_that_no_script_wrote_is_refused(store: Any, server: RedisServer, field: str) -> None:
    field = field.replace("next", "n:")
    created(store)
    taken(store)
    server.client().hset(tag_keys(store.tag)[0], field, "-7")
    with pytest.raises(StoreUnavailable, match=rf"field '{field}' holds '-7'.*snowredis numbers delete"):
        taken(store)
    if field != "n:":
        server.client().hdel(tag_keys(store.tag)[0], field)
        with pytest.raises(StoreUnavailable):
            taken(store)


@pytest.mark.parametrize(
    "settings",
    [
        {"tag": "a b"},
        {"start": -1},
        {"start": 5, "maximum": 4},
        {"maximum": 2**63},
        {"stride": 0},
        {"failover_slack": -1},
        {"durability": "none"},
        {"layout": "default"},
        {"layout": "game-shards", "maximum": 5000},
        {"period": "day", "start": 7},
    ],
)
def test_constants_that_cannot_work_are_refused(server: RedisServer, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        create_tag(server.url, **{"tag": "t", **settings})
