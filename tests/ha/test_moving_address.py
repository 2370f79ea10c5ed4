"""An address that follows the master, in a planned failover after which the old master keeps its connections open."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.lab.chaos.proxy import Proxy
from tests.support.servers import PROGRAM, follow, replicated
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
TTL_S = 3.0


@pytest.mark.parametrize("refusal", ["replica", "too few replicas"])
def test_a_worker_leaves_a_demoted_master_that_keeps_its_connections(tmp_path: Path, refusal: str) -> None:
    settings: dict[str, Any] = {"pool": "orders", "ttl": TTL_S, "failover_slack": 0.2}
    with contextlib.ExitStack() as stack:
        old, new = stack.enter_context(replicated(tmp_path))
        proxy = Proxy(old.socket)
        proxy.start()
        stack.callback(proxy.stop)
        ids = stack.enter_context(snowredis.connect(f"redis://127.0.0.1:{proxy.port}", **settings))
        first = ids.next_id()
        # new connections lead to the new master; those that exist stay
        proxy._target = new.socket
        new.client().replicaof("NO", "ONE")
        if refusal == "replica":
            follow(old, new)
        else:
            old.client().config_set("min-replicas-to-write", 1)
        before = ids.lease
        assert before is not None
        eventually(
            lambda: (lease := ids.lease) is not None and lease.until > before.until, "a renewal at the new master"
        )
        assert ids.next_id() > first
        assert new.client().hget("snowredis:{orders}", "adopted") == "1"
