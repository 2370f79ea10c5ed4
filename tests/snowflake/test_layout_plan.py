"""A planned change of the layout is on every copy of the pool that can come back, before it counts."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.snowflake.administration import Changing, PoolAdministration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from tests.lease.conftest import wall_ms
from tests.support.ports import free_port
from tests.support.servers import PROGRAM, RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
OLD = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
NEW = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=7)
CONFIG = PoolConfig(name="orders", layout=OLD)
KEY = pool_keys("orders")[0]


def plan(server: RedisServer) -> None:
    store = PoolAdministration(server.url, CONFIG)
    assert isinstance(store.change_layout(NEW, wall_ms() + 600_000, wall_ms()), Changing)
    store.close()


@pytest.mark.parametrize("kept", [("--save", "3600 1"), ("--appendonly", "yes")])
def test_a_crash_right_after_the_plan_does_not_forget_it(tmp_path: Path, kept: tuple[str, str]) -> None:
    server = RedisServer(tmp_path, *kept)
    server.start()
    try:
        PoolAdministration(server.url, CONFIG).create(wall_ms())
        server.client().bgrewriteaof() if "appendonly" in kept[0] else server.save()
        plan(server)
        server.restart()
        assert server.client().hget(KEY, "next_signature")
    finally:
        server.kill()


def test_a_server_that_keeps_nothing_on_disk_gets_no_snapshot(own_server: RedisServer) -> None:
    """It would find that snapshot at its next start, and take it for its state."""
    PoolAdministration(own_server.url, CONFIG).create(wall_ms())
    plan(own_server)
    assert not list(own_server.directory.glob("*.rdb"))


def test_a_replica_without_the_plan_undoes_it(tmp_path: Path) -> None:
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        servers.append(RedisServer(tmp_path / name, "--port", str(free_port()), "--repl-diskless-sync-delay", "0"))
    master, replica = servers
    try:
        for server in servers:
            server.start()
        replica.client().replicaof("127.0.0.1", str(master.client().config_get("port")["port"]))
        eventually(lambda: replica.client().info("replication").get("master_link_status") == "up", "the link", 20)
        PoolAdministration(master.url, CONFIG).create(wall_ms())
        plan(master)
        assert replica.client().hget(KEY, "next_signature")
        store = PoolAdministration(master.url, CONFIG)
        store.change_layout(OLD, wall_ms() + 600_000, wall_ms())
        replica.kill(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            plan(master)
        assert master.client().hget(KEY, "next_signature") is None
    finally:
        replica.kill(signal.SIGCONT)
        for server in servers:
            server.kill()


def test_without_the_right_to_make_a_snapshot_the_plan_counts_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(tmp_path, "--save", "3600 1", "--rename-command", "BGSAVE", "")
    server.start()
    try:
        PoolAdministration(server.url, CONFIG).create(wall_ms())
        with caplog.at_level(logging.WARNING, "snowredis"):
            plan(server)
        assert "repeat this command" in caplog.text
    finally:
        server.kill()


def test_a_refusal_of_a_new_layout_says_that_the_change_may_be_lost() -> None:
    other = PoolConfig(name="orders", layout=NEW)
    assert "snowredis pool change-layout" in str(LayoutMismatch("orders", CONFIG.signature, other.signature))
