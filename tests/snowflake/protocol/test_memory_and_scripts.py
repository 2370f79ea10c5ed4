"""The store in memory and the scripts, on the same requests at the same times: the same replies, records and events.

Random holders, with clones, requests that are repeated or late, and clocks that are wrong. The scripts run on the Redis
of the simulation, which loses nothing here, as a store in memory.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import NO_STATS, Exists, Granted, Reply, Seen
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.world import World
from tests.support.holder import Holder, create, fresh_hex
from tests.support.lua_store import LuaStore

TTL_MS = 1_200
UNIT_MS = TTL_MS // 12
LANES = Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10)
CONFIGS = {
    "outage lanes": PoolConfig(name="p", layout=LANES, ttl_ms=TTL_MS, outage_reserve_ms=20_000),
    "no outage lanes": PoolConfig(
        name="p", layout=LANES, ttl_ms=TTL_MS, outage_reserve_ms=0, failover_slack_ms=TTL_MS // 12 + UNIT_MS
    ),
    "one lane": PoolConfig(
        name="p", layout=Layout(timestamp_bits=41, worker_bits=2, backup_bits=0, sequence_bits=20), ttl_ms=TTL_MS
    ),
}
COUNTED = ("claims", "refused", "releases", "expired", "returned", "lost")


class Pair:
    """Both stores, and holders in pairs."""

    def __init__(self, config: PoolConfig, seed: int) -> None:
        self.config, self.random = config, Random(seed)
        self.odd = (0.0, 0.02, 0.3)[seed % 3]
        self.world = World(seed)
        self.server = RedisModel(self.world, "redis")
        self.memory = MemoryStore(config, lambda: self.server.now_us // 1000)
        self.events: list[dict[str, str]] = []
        self.server.commands = {**self.server.commands, "XADD": self._added}
        self.scripts = LuaStore(config, self.server).create_old()
        assert isinstance(create(self.memory, self.clock()), Exists)
        self.seen = (Seen(), Seen())
        self.holders: list[tuple[Holder, Holder]] = []

    def _added(self, *args: str) -> str:
        self.events.append(dict(zip(args[5::2], args[6::2], strict=True)))
        return "1-0"

    def both(self, pair: tuple[Holder, Holder], ask: Callable[[Holder], Any]) -> None:
        """Make the same request twice, and compare everything."""
        was = self.seen
        # each knows the newest state of the pool
        pair[0].seen, pair[1].seen = was
        one, other = map(ask, pair)
        assert comparable(one) == comparable(other)
        self.seen = (pair[0].seen, pair[1].seen)
        assert (self.seen[0].incarnation == was[0].incarnation) == (self.seen[1].incarnation == was[1].incarnation)
        self.compare()

    def compare(self) -> None:
        key, index, _ = pool_keys("p")
        stored = self.server.data[key]
        records = {int(field[2:]): LeaseRecord.parse(text) for field, text in stored.items() if field.startswith("w:")}
        kept = self.memory._records
        assert {w: without_names(r) for w, r in records.items()} == {w: without_names(r) for w, r in kept.items()}
        passed = self.memory._passed
        ends = {str(w): max(r.lease_end_ms, passed.get(w, 0)) for w, r in kept.items()}
        assert self.server.data.get(index, {}) == ends
        # the claim of a lease that was renewed since gets another worker id under the same token
        tokens = {(field[2:], int(text)) for field, text in stored.items() if field.startswith("t:")}
        assert tokens <= {(r.token_hash, worker) for worker, r in kept.items() if r.token_hash}
        numbers = {name: int(stored[name] or 0) for name in ("start", "lost_at", "is_new", "version")}
        # a pool in memory has no end, and so none before it
        assert numbers == {
            "start": 0,
            "lost_at": 0,
            "is_new": 1,
            "version": self.memory._version,
        }
        assert {name: int(stored.get(name, 0)) for name in COUNTED} == {
            name: self.memory._counts[name] for name in COUNTED
        }
        written = [entry for _, entry in self.memory._entries]
        assert sorted(map(fields_of, self.events)) == sorted(map(fields_of, written))

    def step(self) -> None:
        random = self.random
        # most times are multiples of the lead and the skew: what is at or below a bound is often exactly there
        passed_ms = random.choice((0, UNIT_MS, UNIT_MS, TTL_MS // 3, TTL_MS // 2))
        if random.random() < self.odd:
            passed_ms += random.choice((-1, 1, 10))
        if random.random() < 0.05:
            passed_ms = random.choice((TTL_MS, 2 * TTL_MS, 30_000))
        self.world.run(self.world.now_us + max(0, passed_ms) * 1000)
        ahead_ms = random.choice((0, 0, 0, 0, UNIT_MS, -UNIT_MS, 2 * UNIT_MS, -TTL_MS, 10 * TTL_MS))
        options = random.choice(("og", "ogn", "n", "", "o"))
        chance = random.random()
        if len(self.holders) < 3 or chance < 0.25:
            new = (Holder(self.memory, self.clock), Holder(self.scripts, self.clock))
            new[1].token = new[0].token
            self.both(new, lambda holder: claimed(holder, ahead_ms, options))
            # the scripts cannot tell whether they forgot a lease in which no id can be made
            if not new[0].lanes_ms or new[0].until_ms > new[0].lanes_ms[0]:
                self.holders = [*self.holders[-9:], new]
            return
        pair = random.choice(self.holders)
        if chance < 0.3:
            # a clone, or a message that was on its way for long
            self.holders.append((copy.copy(pair[0]), copy.copy(pair[1])))
        elif chance < 0.35:
            if self.has_ended(pair[0]):
                pair[0].token = pair[1].token = fresh_hex()
            self.both(pair, lambda holder: claimed(holder, ahead_ms, options))
        elif not pair[0].lanes_ms:
            return
        elif chance < 0.8:
            pending = fresh_hex()
            for _ in range(random.choice((1, 1, 2))):
                self.both(pair, lambda holder: holder.ask_renew(pending, ahead_ms=ahead_ms))
        else:
            opened = "".join(random.choice("01") for _ in pair[0].lanes_ms) if random.random() < 0.8 else ""
            self.both(pair, lambda holder: holder.release(opened))

    def has_ended(self, holder: Holder) -> bool:
        record = self.memory._records.get(holder.worker)
        return record is None or record.lease_end_ms <= self.server.now_us // 1000

    def clock(self) -> int:
        return self.world.now_us // 1000


def claimed(holder: Holder, ahead_ms: int, options: str) -> Reply:
    holder.options = options
    reply = holder.ask_claim(ahead_ms=ahead_ms)
    if isinstance(reply, Granted):
        holder.terms = reply.terms
    return reply


def comparable(reply: Any) -> Any:
    if not isinstance(reply, Reply):
        return reply
    values = dict(vars(reply), seen=reply.seen.version)
    if "terms" in values:
        values["terms"] = values["terms"]._replace(incarnation="", renewal_id="")
    return type(reply), values


def fields_of(event: dict[str, str]) -> list[tuple[str, str]]:
    """Return the fields of an event; a lease that was never renewed has no statistics, or none that are not 0."""
    return sorted((name, value if value != str(NO_STATS) else "") for name, value in event.items())


def without_names(record: LeaseRecord | None) -> LeaseRecord | None:
    """Return the record without what is random in each store."""
    if record is None:
        return None
    first = len(record.renewal_id) == 12
    return record._replace(incarnation="", renewal_id="" if first else record.renewal_id)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_store_in_memory_and_the_scripts_decide_alike(name: str) -> None:
    for seed in range(4):
        pair = Pair(CONFIGS[name], seed)
        for _ in range(100):
            pair.step()
        pair.world.close()


def test_a_forked_child_uses_its_copy_of_the_memory_even_if_another_thread_of_the_parent_did() -> None:
    store = MemoryStore(CONFIGS["one lane"], lambda: 1)
    other = threading.Thread(target=store._lock.acquire)
    other.start()
    other.join()
    store.after_fork()
    assert isinstance(create(store, 1), Exists)
