"""Part `workers`: cost of living workers for one Redis: claims, heartbeats, memory, and their share of its core.

Holders are simulated: the shipped scripts are called as a generator calls them, by one process for all. Twice that
is done in real time, every holder on a connection of its own, at the default heartbeat; and once with 1,000 real
generators and their threads.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import resource
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.connection import UnixDomainSocketConnection

import snowredis
from scripts._bench import idle
from scripts._bench.measuring import in_turns, quartiles
from scripts._bench.server import OWNER, STATS, Server, private_server
from snowredis.core.layout import Layout
from snowredis.process.clock import now_ms
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol.messages import (
    ClaimRequest,
    CreateRequest,
    Granted,
    ReleaseRequest,
    Renewed,
    RenewRequest,
    Seen,
    Terms,
)
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.redis_store import RedisStore, ScriptStore, load
from snowredis.snowflake.upkeep.pace import BEAT_SHARES

# leases of the unit costs outlive the run, so that living workers stay living
LONG_TTL_MS = 3_600_000
# calls between two readings of the server's CPU time
AT_A_TIME = 200


@dataclass(slots=True)
class Holder:
    """Lease of one worker, with what its next heartbeat needs."""

    token: str
    terms: Terms


def claim(store: ScriptStore) -> Holder:
    token = secrets.token_hex(16)
    # a worker id that was released a moment ago has its first lane reserved: that costs Redis the same
    answer = store.ask(ClaimRequest(Seen(), now_ms(), token, OWNER))
    if not isinstance(answer, Granted):
        raise SystemExit(f"a claim was answered with {answer}")
    return Holder(token, answer.terms)


def renew(store: ScriptStore, holder: Holder) -> None:
    pending = secrets.token_hex(8)
    answer = store.ask(RenewRequest(Seen(), now_ms(), holder.token, OWNER, holder.terms, pending, STATS))
    if not isinstance(answer, Renewed):
        raise SystemExit(f"a heartbeat was answered with {answer}")
    holder.terms = answer.terms


def release(store: ScriptStore, holder: Holder) -> None:
    # the first lane was used
    opened = "1".ljust(len(holder.terms.lanes_ms), "0")
    store.ask(ReleaseRequest(Seen(), now_ms(), holder.token, holder.terms, "", opened, STATS))


def config_for(name: str, workers: int, ttl_ms: int = 30_000) -> PoolConfig:
    bits = max(1, workers.bit_length())
    layout = Layout(timestamp_bits=41, backup_bits=0, worker_bits=bits, sequence_bits=22 - bits)
    return PoolConfig(name=name, layout=layout, ttl_ms=ttl_ms)


def measure(*, quick: bool) -> dict[str, Any]:
    sizes, rounds = ((10, 100), 2) if quick else ((10, 1_000, 100_000), 25)
    fleets, seconds = ((20, 100), 1.0) if quick else ((1_000, 10_000), 20.0)
    with private_server() as server:
        costs = _unit_costs(server, sizes, rounds)
    fleet_rows = []
    for workers in fleets:
        with private_server("--maxclients", str(workers + 1_000)) as server:
            fleet_rows.append(_in_real_time(server, workers, seconds))
    with private_server() as server:
        real = _real_generators(server, 20 if quick else 1_000, seconds)
    with private_server() as server:
        idle_us = idle.measure(server, max(2.0, seconds), 2 if quick else 5)
    return {"rounds": rounds, "costs": costs, "fleets": fleet_rows, "real": real, "idle_us": idle_us}


def _unit_costs(server: Server, sizes: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Measure a claim and a heartbeat, one after the other on one connection, in turns over *sizes*."""
    stores = {size: RedisStore(server.url, config_for(f"living-{size}", size, LONG_TTL_MS)) for size in sizes}
    living: dict[int, list[Holder]] = {}
    kept_bytes = {}
    for size, store in stores.items():
        store.ask(CreateRequest(Seen(), now_ms()))
        before = server.used_bytes()
        living[size] = [claim(store) for _ in range(size)]
        for holder in living[size]:
            renew(store, holder)
        events = server.client.memory_usage(pool_keys(store.config.name)[2], samples=0) or 0
        kept_bytes[size] = (server.used_bytes() - before - events) / size
    found: dict[int, dict[str, list[float]]] = {
        size: {"claim_us": [], "life_cpu_us": [], "beat_us": [], "beat_cpu_us": []} for size in sizes
    }
    for number in in_turns([str(size) for size in sizes], rounds):
        size = int(number)
        store, figures = stores[size], found[size]
        with _cpu_us(server, AT_A_TIME, figures["life_cpu_us"]):
            for _ in range(AT_A_TIME):
                began = time.perf_counter_ns()
                holder = claim(store)
                figures["claim_us"].append((time.perf_counter_ns() - began) / 1000)
                release(store, holder)
        with _cpu_us(server, AT_A_TIME, figures["beat_cpu_us"]):
            for holder in random.choices(living[size], k=AT_A_TIME):
                began = time.perf_counter_ns()
                renew(store, holder)
                figures["beat_us"].append((time.perf_counter_ns() - began) / 1000)
    for store in stores.values():
        store.close()
    return [
        {"living": size, "bytes_each": kept_bytes[size]} | {name: quartiles(us) for name, us in found[size].items()}
        for size in sizes
    ]


@contextlib.contextmanager
def _cpu_us(server: Server, count: int, figures: list[float]) -> Iterator[None]:
    """Append the server's CPU time for one of *count* operations, sockets included, in us."""
    before_s = server.cpu_s()
    yield
    figures.append((server.cpu_s() - before_s) / count * 1e6)


class Wire(ScriptStore):
    """Store that sends each script over the connection that is set."""

    connection: UnixDomainSocketConnection
    where = "the benchmark's own server"

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        self.connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
        return list(self.connection.read_response())

    def close(self) -> None:
        pass


def connect(path: str) -> UnixDomainSocketConnection:
    connection = UnixDomainSocketConnection(path=path)  # type: ignore[abstract]  # redis-py never sets host
    connection.connect()
    return connection


def _in_real_time(server: Server, workers: int, seconds: float) -> dict[str, Any]:
    """Claim for *workers*, give each a connection, and send their heartbeats when they are due."""
    _allow_files(workers + 200)
    config = config_for("fleet", workers)
    wire = Wire(config)
    for name in ("claim", "renew", "create"):
        server.client.script_load(load(name).source)
    wire.connection = connect(server.path)
    wire.ask(CreateRequest(Seen(), now_ms()))
    bare_bytes = server.used_bytes()
    holders = [claim(wire) for _ in range(workers)]
    for holder in holders:
        renew(wire, holder)
    events_bytes = server.client.memory_usage(pool_keys("fleet")[2], samples=0) or 0
    pool_bytes = server.used_bytes() - bare_bytes - events_bytes
    before_bytes = server.used_bytes()
    connections = [connect(server.path) for _ in range(workers)]

    idle_s, began_s = server.cpu_s(), time.perf_counter()
    time.sleep(min(3.0, seconds))
    idle = (server.cpu_s() - idle_s) / (time.perf_counter() - began_s)

    def beat(at: int) -> None:
        wire.connection = connections[at]
        renew(wire, holders[at])

    def ping(at: int) -> None:
        connections[at].send_command("PING")
        connections[at].read_response()

    beats = _replay(server, workers, config.heartbeat_ms / 1000, seconds, beat)
    # what no heartbeat can be below
    pings = _replay(server, workers, config.heartbeat_ms / 1000, seconds / 2, ping)
    # now, when the server has taken back what connections need only at their beginning
    connection_bytes = server.used_bytes() - before_bytes
    for connection in connections:
        connection.disconnect()
    return {
        "workers": workers,
        **beats,
        "ping_share": pings["share_of_core"],
        "idle_share": idle,
        "bytes_each": pool_bytes / workers,
        "connection_bytes": connection_bytes / workers,
        "events_bytes": events_bytes,
    }


def _replay(
    server: Server, workers: int, every_s: float, seconds: float, beat: Callable[[int], None]
) -> dict[str, Any]:
    """Call beat(n) for every worker n when its generator would: a little apart, and a little early."""
    cpu_s, began_s = server.cpu_s(), time.perf_counter()
    due = [(began_s + random.uniform(0, every_s), at) for at in range(workers)]
    heapq.heapify(due)
    sent = 0
    until_s = began_s + seconds
    while (now_s := time.perf_counter()) < until_s:
        due_s, at = due[0]
        if due_s > now_s:
            time.sleep(min(due_s, until_s) - now_s)
            continue
        beat(at)
        sent += 1
        heapq.heapreplace(due, (due_s + random.uniform(*BEAT_SHARES) * every_s, at))
    wall_s, cpu_s = time.perf_counter() - began_s, server.cpu_s() - cpu_s
    return {
        "seconds": wall_s,
        "beats_per_second": sent / wall_s,
        "share_of_core": cpu_s / wall_s,
        "cpu_us_a_beat": cpu_s / max(1, sent) * 1e6,
    }


def _real_generators(server: Server, count: int, seconds: float) -> dict[str, Any]:
    """Run *count* generators with their heartbeat threads, and measure their cost in this process and in the server."""
    _allow_files(count + 200)
    config = config_for("real", count)
    RedisStore(server.url, config).ask(CreateRequest(Seen(), now_ms()))
    ids = [snowredis.connect(server.url, pool="real", layout=config.layout) for _ in range(count)]
    began_s = time.perf_counter()
    for each in ids:
        each.next_id()
    claimed_s = time.perf_counter() - began_s
    calls = _scripts_run(server)
    cpu_s, own_s, began_s = server.cpu_s(), time.process_time(), time.perf_counter()
    time.sleep(seconds)
    wall_s = time.perf_counter() - began_s
    cpu_s, own_s = server.cpu_s() - cpu_s, time.process_time() - own_s
    beats = _scripts_run(server) - calls
    for each in ids:
        each.close()
    return {
        "generators": count,
        "seconds": wall_s,
        "claims_per_second": count / claimed_s,
        "beats_per_second": beats / wall_s,
        "share_of_core": cpu_s / wall_s,
        "own_share_of_core": own_s / wall_s,
        "own_us_a_beat": own_s / max(1, beats) * 1e6,
        "cpu_us_a_beat": cpu_s / max(1, beats) * 1e6,
    }


def _scripts_run(server: Server) -> int:
    return int(server.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SystemExit(f"{count} connections need as many open files, and the limit is {hard}: raise it (ulimit -n)")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
