"""The end of a pool is on every copy of it that can come back, before it counts."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.snowflake.administration import Ends, PoolAdministration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Renewed
from tests.snowflake.lease.conftest import wall_ms
from tests.support.holder import Holder
from tests.support.servers import PROGRAM, RedisServer, replicated

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
OLD = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
NEW = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=7)
CONFIG = PoolConfig(name="orders", layout=OLD)
KEY = pool_keys("orders")[0]


def end(server: RedisServer, at_ms: int = 0) -> Ends:
    """Give the pool an end in ten minutes, with another layout after it."""
    store = PoolAdministration(server.url, CONFIG)
    reply = store.end(wall_ms(), layout=NEW, at_ms=at_ms or wall_ms() + 600_000)
    store.close()
    assert isinstance(reply, Ends)
    return reply


@pytest.mark.parametrize("kept", [("--save", "3600 1"), ("--appendonly", "yes")])
def test_a_crash_right_after_the_end_was_set_does_not_forget_it(tmp_path: Path, kept: tuple[str, str]) -> None:
    server = RedisServer(tmp_path, *kept)
    server.start()
    try:
        PoolAdministration(server.url, CONFIG).create(wall_ms())
        server.client().bgrewriteaof() if "appendonly" in kept[0] else server.save()
        held = Holder(PoolAdministration(server.url, CONFIG), wall_ms).claim()
        ends = end(server, held.until_ms + 600_000)
        server.restart()
        assert server.client().hmget(KEY, "end", "over") == [str(ends.end_ms), "then"]
    finally:
        server.kill()


def test_a_server_that_keeps_nothing_on_disk_gets_no_snapshot(own_server: RedisServer) -> None:
    """It would find that snapshot at its next start, and take it for its state."""
    PoolAdministration(own_server.url, CONFIG).create(wall_ms())
    end(own_server)
    assert not list(own_server.directory.glob("*.rdb"))


def test_an_end_does_not_count_before_each_replica_has_it(tmp_path: Path) -> None:
    with replicated(tmp_path) as (master, replica):
        PoolAdministration(master.url, CONFIG).create(wall_ms())
        living = Holder(PoolAdministration(master.url, CONFIG), wall_ms).claim()
        replica.kill(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            end(master)
        set_ms, over = master.client().hmget(KEY, "end", "over")
        assert over is None
        # nothing reaches beyond it from now on, and no other is set
        assert isinstance(living.ask_renew(ahead_ms=10**9), Renewed)
        assert living.until_ms <= int(set_ms or 0)
        replica.kill(signal.SIGCONT)
        again = end(master, wall_ms() + 900_000)
        assert again.end_ms == int(set_ms or 0)
        assert master.client().hget(KEY, "over") == "then"
        assert replica.client().hget(KEY, "end") == set_ms


def test_an_end_that_redis_loses_before_it_counts_is_no_end(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    PoolAdministration(own_server.url, CONFIG).create(wall_ms())
    changes = iter((lambda: None, lambda: own_server.client().hdel(KEY, "end", "next_signature")))
    lasting = PoolAdministration._lasting

    def after_a_loss(self: PoolAdministration, *args: Any, **options: Any) -> Any:
        next(changes)()
        return lasting(self, *args, **options)

    monkeypatch.setattr(PoolAdministration, "_lasting", after_a_loss)
    with pytest.raises(StoreUnavailable, match=r"it lost the end .* Repeat the command"):
        end(own_server)
    assert own_server.client().hmget(KEY, "end", "next_signature", "over") == [None, None, None]


def test_without_the_right_to_make_a_snapshot_the_end_counts_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(tmp_path, "--save", "3600 1", "--rename-command", "BGSAVE", "")
    server.start()
    try:
        PoolAdministration(server.url, CONFIG).create(wall_ms())
        with caplog.at_level(logging.WARNING, "snowredis"):
            end(server)
        assert "repeat this command" in caplog.text
        assert server.client().hget(KEY, "over")
    finally:
        server.kill()


def test_a_refusal_of_a_new_layout_says_that_the_change_may_be_lost() -> None:
    other = PoolConfig(name="orders", layout=NEW)
    assert "snowredis pool change-layout" in str(LayoutMismatch("orders", CONFIG.signature, other.signature))
