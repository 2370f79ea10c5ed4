"""A real server that boots with its clock behind, loads an old snapshot, and has its clock set before any script."""

from __future__ import annotations

from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from tests.chaos import shim
from tests.snowflake.lease.conftest import wall_ms
from tests.support.servers import PROGRAM, RedisServer
from tests.support.waiting import eventually

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=1, sequence_bits=10)
TTL_S = 0.5


@pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
def test_an_uptime_of_an_hour_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, reason = shim.build(tmp_path)
    if library is None:
        pytest.skip(reason)
    clock = shim.StepClock(tmp_path / "clock", library)
    for name, value in clock.environment.items():
        # inherited by the server; a preloaded library means nothing to this process, which is running already
        monkeypatch.setenv(name, value)
    server = RedisServer(tmp_path)
    try:
        server.start()
        config = PoolConfig(name="orders", layout=LAYOUT, ttl_ms=round(TTL_S * 1000))
        RedisStore(server.url, config).create(wall_ms())
        # knows the pool, and nothing of the claim that comes now
        server.save()
        with (
            snowredis.connect(server.url, pool="orders", layout=LAYOUT, ttl=TTL_S) as first,
            snowredis.connect(server.url, pool="orders", layout=LAYOUT, ttl=TTL_S) as second,
        ):
            made = set(first.next_ids(1_000))
            old = first.lease
            server.kill()
            clock.set(-3_600)
            server.start()
            clock.set(0)
            eventually(lambda: server.client().info("server")["uptime_in_seconds"] > 3_000, "an uptime of an hour")
            second.claim()
            new = second.lease
            assert old is not None
            assert new is not None
            assert new.worker != old.worker or min(new.opens) >= old.until
            assert made.isdisjoint(second.next_ids(1_000))
    finally:
        server.kill()
