"""The objects that the members of one generator share."""

from __future__ import annotations

import random
from typing import NamedTuple

from snowredis.core.lanes import ClockRules
from snowredis.lease.model import PoolConfig
from snowredis.runtime.clock import Clock
from snowredis.runtime.counts import ClockBackLog, Counts
from snowredis.runtime.fast_path import FastPath
from snowredis.runtime.fork import ForkGuard


class Context(NamedTuple):
    """The surroundings of one generator's members.

    Attributes:
        path: the generator, as a weak proxy: in a cycle of references, a generator that nobody uses any more would
            go on renewing its lease until the garbage collector runs.
        random: seeded again in a forked child.
    """

    path: FastPath
    config: PoolConfig
    clock: Clock
    guard: ForkGuard
    rules: ClockRules
    random: random.Random
    counts: Counts
    clock_backs: ClockBackLog

    @property
    def longest_wait_ms(self) -> int:
        """Longest time until the lanes of a claimed worker id open, in ms: a floor, to the end of its tick."""
        return self.config.floor_ms + self.config.layout.tick_ms

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return self.clock.time_ns() // 1_000_000
