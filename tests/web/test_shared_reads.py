"""One look at Redis for all readers, and what they get of it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from snowredis.web.service import create_app
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import client_of


def calls_of(server: RedisServer) -> int:
    stats = server.client().info("commandstats")
    return stats.get("cmdstat_zrangebyscore", {}).get("calls", 0)


def test_readers_of_the_same_moment_share_one_look(
    own_server: RedisServer, pool_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than the test
    monkeypatch.setattr("snowredis.web.feed.FRESH_S", 60.0)
    new_pool(own_server.url, pool_name)
    with client_of(create_app(own_server.url, pools=[pool_name])) as client, ThreadPoolExecutor(10) as threads:
        before = calls_of(own_server)
        answers = list(threads.map(lambda _: client.get("/workers"), range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        # calls of the feed or of these readers, and of heartbeats meanwhile; not of each of the 30 readers
        assert calls_of(own_server) - before <= 4


def test_lists_are_encoded_as_json_encodes_them() -> None:
    from snowredis.web.messages import json_bytes

    values: list[Any] = [{"a": [1, {"b": [None]}], "ü": "x"}, {"a": []}, {}, [1, 2], "x", {"a": {"b": [1 << 60]}}]
    for value in values:
        assert json.loads(json_bytes(value)) == value
