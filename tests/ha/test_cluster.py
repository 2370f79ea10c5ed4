"""Pools in a real Redis Cluster: each in the slot that its name falls into."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

import snowredis
from snowredis.snowflake.protocol.pool_config import pool_keys
from tests.support.ha import Cluster, Maker, Node, assert_no_id_twice, eventually, running
from tests.support.pools import new_pool
from tests.support.ports import free_port

# as in test_sentinel.py: a node that is gone is noticed after a second
SETTINGS: dict[str, Any] = {"ttl": 6.0, "max_clock_lead": 0.2, "failover_slack": 1.2}


def name_on(node: int, prefix: str) -> str:
    """Return the name of a pool whose slot the node with this number has."""
    bounds = [0, 5461, 10923, 16384]
    names = (f"{prefix}{i}" for i in range(1000))
    return next(n for n in names if bounds[node] <= key_slot(pool_keys(n)[0].encode()) < bounds[node + 1])


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_pool_works_on_whichever_node_its_slot_is(slots: Cluster, node: int) -> None:
    name = new_pool(slots.url, name_on(node, "any"), **SETTINGS)
    theirs = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", slots.nodes[0].port)])
    with (
        contextlib.closing(theirs),
        snowredis.connect(slots.url, pool=name, label="url", **SETTINGS) as ours,
        snowredis.connect(theirs, pool=name, label="client", **SETTINGS) as others,
    ):
        assert_no_id_twice(ours.next_ids(500), others.next_ids(500))
        assert ours._beat() > 0
        assert slots.nodes[node].ask("EXISTS", pool_keys(name)[0]) == 1
        seen = snowredis.WorkerPool(slots.url, name)
        assert [worker.label for worker in seen.workers()] == ["url", "client"]
        assert name in seen.pools()
    assert seen.workers() == []
    seen.close()


class OwnRedisCluster(RedisCluster):
    """A client of a class of the application's own, which is used as it is."""


@pytest.mark.parametrize("kind", [None, OwnRedisCluster])
def test_a_slot_that_moves_takes_its_pool_with_it(slots: Cluster, kind: type[RedisCluster] | None) -> None:
    name = new_pool(slots.url, name_on(1, "moving" if kind is None else "own"), ttl=6.1, failover_slack=0)
    client = slots.url if kind is None else kind(startup_nodes=[ClusterNode("127.0.0.1", slots.nodes[0].port)])
    slot = key_slot(pool_keys(name)[0].encode())
    source, target = slots.nodes[1], slots.nodes[2]
    ids = {node.port: node.ask("CLUSTER", "MYID") for node in (source, target)}
    with Maker(snowredis.connect(client, pool=name, ttl=6.1, failover_slack=0)) as holder:
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 1000, "KEYS", *keys)
        for node in slots.nodes[:3]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])
        # another server process: as after a failover
        before = holder.lease
        assert holder.generator._beat() > 0
        holder.wait_for_adoption(before)
        assert target.ask("EXISTS", pool_keys(name)[0]) == 1
    assert not holder.errors


@pytest.mark.parametrize("min_replicas", [0, 1])
def test_a_node_that_serves_no_slots_any_more_is_left(slots: Cluster, tmp_path: Path, min_replicas: int) -> None:
    # the node of this pool has one replica
    name = new_pool(slots.url, name_on(0, f"astray{min_replicas}"), failover_slack=0)
    lost = Node(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    astray = True

    def remap(address: tuple[str, int]) -> tuple[str, int]:
        """At first, return an outdated address: a node that replies CLUSTERDOWN."""
        return (address[0], lost.port) if astray and address[1] == slots.nodes[0].port else address

    known = [ClusterNode("127.0.0.1", node.port) for node in slots.nodes[1:3]]
    theirs = RedisCluster(startup_nodes=known, address_remap=remap)
    with running([lost]), contextlib.closing(theirs):
        ids = snowredis.connect(theirs, pool=name, failover_slack=0, min_replicas=min_replicas)
        with contextlib.closing(ids):
            with pytest.raises(snowredis.StoreUnavailable, match="check CLUSTER INFO"):
                ids.next_id()
            astray = False
            ids.next_id()


def test_a_living_holder_and_a_view_go_on_through_a_failover_of_its_node(slots: Cluster) -> None:
    # the last test of this module: the node does not come back
    name = new_pool(slots.url, name_on(0, "failing"), **SETTINGS)
    # the node of this pool has one replica
    options = SETTINGS | {"pool": name, "min_replicas": "all"}
    with snowredis.connect(slots.url, **options) as ids:
        ids.next_id()
    with (
        contextlib.closing(snowredis.WorkerPool(slots.url, name)) as seen,
        Maker(snowredis.connect(slots.url, pool=name, **SETTINGS)) as holder,
    ):
        before = holder.lease
        assert seen.read().error is None
        slots.nodes[0].kill()
        eventually(lambda: slots.nodes[3].info("replication")["role"] == "master", "a failover")
        eventually(lambda: seen.read().error is None, "a reading from the node that took over")
        holder.wait_for_adoption(before)
    assert not holder.errors
    assert_no_id_twice(holder.ids)


def test_a_server_that_is_no_cluster_is_said(slots: Cluster) -> None:
    port = slots.nodes[0].port
    with contextlib.closing(redis.Redis(port=port)) as client:
        assert snowredis.connect(client, pool="p").pool == "p"
    with pytest.raises(snowredis.StoreUnavailable, match=r"cluster://127\.0\.0\.1:1 cannot be used"):
        snowredis.connect("cluster://127.0.0.1:1", pool="p").next_id()
