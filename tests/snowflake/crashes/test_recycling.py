"""Servers that replace their processes go on while Redis is away: each process takes over what its sibling left."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import PoolConfig
from tests.support.servers import RedisServer, redis_server

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

        running.wait_until_ready(2)
        ask(1)
        # both workers have worker ids when Redis goes away, and requests left
        while any(pids.count(pid) > 8 for pid in running.wait_until_ready(2)):
            ask(0.01)
        own_server.kill()
        before = len(pids)
        # past the end of the ordinary lanes
        ask(10)
        assert len({*pids[before:]}) >= 6
        assert snowredis.decode(made[-1]).backup == OUT
        own_server.start()
        ask(6)
        assert len(set(made)) == len(made)


def test_celery_replaces_children_after_some_tasks_while_redis_is_away(own_server: RedisServer, tmp_path: Path) -> None:
    """The broker is another Redis."""
    pytest.importorskip("celery")
    from tests.integrations.celery_worker import POOL, worker

    away = tmp_path / "away"
    away.mkdir()
    with redis_server(away) as server:
        create(server.url, POOL, 3.0)
        options = ("--concurrency=2", "--max-tasks-per-child=10")
        more = {"TTL": "3", "POOL_URL": server.url, "NOTES_URL": f"unix://{own_server.socket}"}
        with worker(own_server, tmp_path / "log", *options, **more) as running:
            # both children have worker ids when Redis goes away, and tasks left
            sent = 0
            last: list[Any] = [0]
            while len(set(last)) < 2 or max(map(last.count, set(last))) > 8:
                running.send(2)
                sent += 2
                running.wait_for(sent)
                pids = [note[0] for note in running.notes()]
                last = [pid for pid in pids if pid in pids[-2:]]
            server.kill()
            for round_ in range(1, 5):
                running.send(30)
                running.wait_for(sent + 30 * round_)
                time.sleep(1)
            assert len({note[0] for note in running.notes()[sent + 30 :]}) >= 4
            ids = running.ids()
            assert len(set(ids)) == len(ids)
