"""Servers that replace their processes go on while Redis is away: each process takes over what its sibling left."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import PoolConfig
from tests.support.servers import RedisServer

OUT = Layout().namespaces - 1


def create(url: str, name: str, ttl_s: float) -> None:
    pool = snowredis.WorkerPool(url, name)
    pool.create(PoolConfig(name=name, ttl_ms=int(ttl_s * 1000)))


def test_gunicorn_replaces_workers_after_some_requests_while_redis_is_away(
    own_server: RedisServer, tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    from tests.integrations.gunicorn_server import POOL, gunicorn

    create(own_server.url, POOL, 3.0)
    made: list[int] = []
    pids: list[int] = []
    reserve = str(24 * 3600)
    with gunicorn(own_server, tmp_path, "--workers=2", "--max-requests=15", ttl_s=3, OUTAGE_RESERVE=reserve) as running:

        def ask(for_s: float) -> None:
            end_s = time.monotonic() + for_s
            while time.monotonic() < end_s:
                status, body = running.request("/ids/20")
                assert status == 200, body
                found = json.loads(body)
                made.extend(found["ids"])
                pids.append(found["pid"])
                # each process ends after 15 of them
                time.sleep(0.03)

        running.wait_until_ready(2)
        ask(1)
        # both workers have worker ids when Redis goes away, and requests left
        while any(pids.count(pid) > 8 for pid in running.wait_until_ready(2)):
            ask(0.01)
        own_server.kill()
        before = len(pids)
        # past the end of the ordinary lanes
        ask(6)
        assert len({*pids[before:]}) >= 5
        assert snowredis.decode(made[-1]).backup == OUT
        own_server.start()
        ask(2)
        assert len(set(made)) == len(made)
