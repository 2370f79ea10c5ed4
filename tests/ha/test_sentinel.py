"""Failovers by real Sentinels: holders continue, new workers wait, and no id is repeated."""

import contextlib
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.sentinel import Sentinel

import snowredis
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support.ha import FEW, MASTER, Maker, Sentinels, assert_no_id_twice, eventually, first_id, running
from tests.support.holder import Holder
from tests.support.pools import new_pool
from tests.support.ports import free_port

# two heartbeats and a failover of 3 s fit in; all servers have one clock
SETTINGS: dict[str, Any] = {"ttl": 10.0, "max_clock_lead": 0.2, "failover_slack": 1.2}
CONSTANTS = {f"{name}_ms": round(seconds * 1000) for name, seconds in SETTINGS.items()}
FLOOR_S = sum(SETTINGS.values())
# down-after 1 s, an election, a promotion; a busy machine
FAILOVER_LIMIT_S = 10.0


def promoted(guarded: Sentinels) -> None:
    """Wait until another master accepts writes."""
    old = guarded.master.port
    port = eventually(lambda: (port := guarded.master_port()) != old and port, "another master", FAILOVER_LIMIT_S)
    new = next(node for node in guarded.replicas if node.port == port)
    eventually(lambda: new.info("replication")["role"] == "master", "its promotion", FAILOVER_LIMIT_S)


def test_a_failover_that_loses_writes_stops_no_holder_and_repeats_no_id_and_no_reservation(guarded: Sentinels) -> None:
    name = new_pool(guarded.url, layout=FEW, **SETTINGS)
    options = SETTINGS | {"pool": name, "layout": FEW}
    with contextlib.ExitStack() as stack:
        theirs = Sentinel([("127.0.0.1", node.port) for node in guarded.sentinels]).master_for(MASTER)
        old = stack.enter_context(Maker(snowredis.connect(theirs, **options)))
        for replica in guarded.replicas:
            eventually(partial(replica.ask, "HGET", f"snowredis:{{{name}}}", "claims"))
        for replica in guarded.replicas:
            replica.kill(signal.SIGSTOP)
        guarded.master.ask("CLIENT", "KILL", "TYPE", "replica")
        # known to the master only: a claim, a renewal, and the claim of a process that dies at once
        lost = stack.enter_context(Maker(snowredis.connect(guarded.url, **options)))
        config = PoolConfig(name=name, layout=FEW, **CONSTANTS)
        store = RedisStore(guarded.url, config)
        stack.callback(store.close)
        dead = Holder(store, lambda: time.time_ns() // 1_000_000).claim()
        renewals = old.lease.renewals
        assert old.generator._beat() > 0
        assert old.lease.renewals > renewals
        leases = [maker.lease for maker in (old, lost)]
        guarded.master.kill()
        for replica in guarded.replicas:
            replica.kill(signal.SIGCONT)
        promoted(guarded)
        for maker, lease in zip((old, lost), leases, strict=True):
            maker.wait_for_adoption(lease)
        # the old master comes back, empty, and takes itself for the master until a Sentinel tells it better
        guarded.master.start()
        heirs = []
        for _ in range(2):
            ids = snowredis.connect(guarded.url, **options)
            first_id(ids, FLOOR_S + FAILOVER_LIMIT_S)
            heirs.append(stack.enter_context(Maker(ids)))
        assert {heir.lease.worker for heir in heirs} == {2, 3}
        heir = next(heir for heir in heirs if heir.lease.worker == dead.worker)
        # step 3, lose: of the reservation that nobody remembers, nothing is given out again
        opens_ms = FEW.ms_at(heir.lease.opens[0])
        assert opens_ms >= dead.until_ms
        heirs[-1].wait_for_ids(100)
        eventually(
            lambda: guarded.master.info("replication")["role"] == "slave", "the end of the old master's reign", 20
        )
        makers = [old, lost, *heirs]
    assert not [maker.errors for maker in makers if maker.errors]
    assert all(len(maker.workers) == 1 for maker in makers)
    assert_no_id_twice(*(maker.ids for maker in makers))


def test_sentinels_that_know_no_such_master_are_said(tmp_path: Path) -> None:
    made = Sentinels(tmp_path)
    with running([made.master, made.sentinels[0]]), contextlib.closing(made.sentinels[0].client()) as observer:
        before = {each["id"] for each in observer.client_list()}
        url = f"sentinel://{made.sentinels[0].address}/other"
        text = r"No master found for 'other'\. A failover may be"
        with pytest.raises(snowredis.StoreUnavailable, match=text), snowredis.connect(url, pool="p") as ids:
            ids.next_id()
        with snowredis.connect(url.replace("/other", f"/{MASTER}"), pool="p", ttl=0.3, failover_slack=0) as ids:
            ids.next_id()
        # once the Sentinel has seen the end of the others
        eventually(lambda: {each["id"] for each in observer.client_list()} <= before)
        observer.execute_command("ACL", "SETUSER", "default", "resetpass", ">right")
        wrong = url.replace("sentinel://", f"sentinel://127.0.0.1:{free_port()},") + "?sentinel_password=x"
        with pytest.raises(snowredis.StoreUnavailable) as caught, snowredis.connect(wrong, pool="p") as ids:
            ids.next_id()
        assert "'other'; 1 Sentinel does not reply; 1 Sentinel does not accept the password. " in str(caught.value)
