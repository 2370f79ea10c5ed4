"""Print ids and errors of random schedules, to compare implementations: implementation_schedules.py FIRST LAST."""

import asyncio
import random
import sys
from array import array

import snowredis
from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout
from snowredis.process.fork import ForkGuard
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import DEFAULT_START_MS, ManualClock, memory_pool

LAYOUTS = [
    Layout(sequence_bits=4, worker_bits=4),
    Layout(backup_bits=0, sequence_bits=2, worker_bits=2),
    Layout(timestamp_bits=38, tick_ms=10, backup_bits=1, worker_bits=3, sequence_bits=16),
    Layout(timestamp_bits=41, backup_bits=2, worker_bits=4, sequence_bits=6, worker_last=True),
    # no sequence; a tick that is never exhausted; a tick of a minute
    Layout(sequence_bits=0, worker_bits=2),
    Layout(timestamp_bits=38, backup_bits=0, worker_bits=2, sequence_bits=22),
    Layout(timestamp_bits=30, tick_ms=60_000, worker_bits=2, sequence_bits=3),
    # begins with the schedule; ends a minute after it began
    Layout(epoch_ms=DEFAULT_START_MS, worker_bits=2, sequence_bits=1),
    Layout(timestamp_bits=34, epoch_ms=DEFAULT_START_MS - (1 << 34) + 60_000, worker_bits=2, sequence_bits=2),
]


def play(seed):
    rng = random.Random(seed)
    clock = ManualClock()
    pool = memory_pool(clock=clock)
    config = PoolConfig(name="same", layout=rng.choice(LAYOUTS), ttl_ms=rng.choice([3000, 30000]))
    rules = ClockRules(
        policy=rng.choice(["backup", "wait"]), max_wait_ms=rng.choice([0, 10]), max_ahead_ms=rng.choice([0, 1000])
    )

    def made():
        return SnowflakeGenerator(
            pool.memory_store(config),
            clock=clock,
            rules=rules,
            random_bytes=rng.randbytes,
            sequence_start=rng.choice(["spread", "spread", "zero"]),
            guard=ForkGuard(),
        )

    many = [made(), made()]

    def call():
        ids = rng.choice(many)
        what = rng.randrange(16)
        if what < 4:
            return ids.next_id()
        if what == 4:
            return next(ids)
        if what == 5:
            return ids.next_ids(rng.choice([1, 3, 40]))
        if what == 6:
            buffer = array("q", bytes(8 * rng.choice([1, 5, 33])))
            ids.fill(buffer)
            return list(buffer)
        if what == 7:
            return asyncio.run(ids.anext_id())
        if what == 8:
            return clock.advance(rng.choice([0.01, 0.4, 1, 7, 900, 40_000]))
        if what == 9:
            return clock.step(rng.choice([-30_000, -900, -12, -5, -0.5, 0.5, 300, 4000]))
        if what == 10:
            return ids._beat()
        if what == 11:
            return ids.ids_made
        if what == 12:
            return ids._after_fork()
        if what == 13:
            ids.suspend()
            return rng.random() < 0.8 and ids.resume()
        if what == 14:
            # to years before 1678 and after 2262, too, when 64 bits have no room for the ns
            return rng.random() < 0.2 and clock.step(rng.choice([-1e13, -1.9e12, -1e11, 1e11, 8e12]))
        if rng.random() < 0.1:
            ids.close()
            many[many.index(ids)] = made()
        return ids.lease

    for _ in range(150):
        try:
            yield call()
        except snowredis.SnowredisError as error:
            yield repr(error)


print(snowredis.IMPLEMENTATION)
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, *play(seed), sep=" | ")
