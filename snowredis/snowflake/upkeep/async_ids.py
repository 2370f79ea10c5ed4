"""Ids for coroutines. What takes well under a millisecond is done on the event loop, the rest in one thread for all.

Loaded by the first coroutine that needs it: most processes make no ids in coroutines.
"""

from __future__ import annotations

import functools

from snowredis.core.lanes import Wait
from snowredis.core.values import check_count
from snowredis.process.clock import MAX_SLEEP_S, FrozenClockCheck
from snowredis.process.coroutines import in_background, result_of, sleep
from snowredis.process.fork import ForkGuard
from snowredis.snowflake.ids.fast_path import FastPath
from snowredis.snowflake.upkeep.slow_path import SlowPath

# ids of one step of the event loop: a list of them takes well under a millisecond
CHUNK = 10_000


async def next_slow(slow: SlowPath) -> int:
    """Make one id when the fast path cannot. Does not block the event loop.

    Raises:
        As SnowflakeGenerator.next_id().
    """
    frozen_check: FrozenClockCheck | None = None
    while True:
        an_id, decision = slow.try_step()
        if an_id:
            return an_id
        if not isinstance(decision, Wait):
            # claims, renews, or waits for the pool: one thread for all coroutines that wait
            preparing = slow.preparing
            if preparing is None or preparing.done():
                preparing = slow.preparing = in_background(functools.partial(slow.next_id, only_claim=True))
            await result_of(preparing)
        elif slow.clock.background:
            frozen_check = frozen_check or FrozenClockCheck(slow.clock)
            await sleep(min(decision.seconds, MAX_SLEEP_S))
            slow.check_clock(frozen_check, decision)
        else:
            # a test clock, which sleeping moves
            slow.clock.sleep(decision.seconds)
            await sleep(0)


async def next_ids(path: FastPath, slow: SlowPath, guard: ForkGuard, count: int) -> list[int]:
    """Make *count* ids at once without blocking the event loop. See SnowflakeGenerator.anext_ids()."""
    count = check_count(count)
    while True:
        generation = guard.generation
        batch: list[int] = []
        while len(batch) < count:
            part = path._take_now(min(count - len(batch), CHUNK)) or [await next_slow(slow)]
            if batch and part[0] < batch[-1]:
                # the clock went back, or another coroutine made ids in a namespace that is behind
                batch.clear()
            batch += part
            if len(part) == CHUNK:
                await sleep(0)
        if guard.is_still(generation):
            return batch
