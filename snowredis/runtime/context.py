"""The objects that the members of one generator share."""

from __future__ import annotations

import random
import weakref
from typing import Any, NamedTuple, cast

from snowredis.core.lanes import ClockRules
from snowredis.lease.model import PoolConfig
from snowredis.runtime.clock import Clock
from snowredis.runtime.counts import ClockBackLog, Counts
from snowredis.runtime.fast_path import FastPath
from snowredis.runtime.fork import ForkGuard


class Reference:
    """A weak reference to a generator, whose attributes it has.

    Weak: in a cycle of references, a generator that nobody uses any more would go on renewing its lease until the
    garbage collector runs. That clears weak references before it calls finalizers, which may still use the generator:
    so it can be renewed.
    """

    __slots__ = ("_ref",)

    def __init__(self, generator: FastPath) -> None:
        self.renew(generator)

    def renew(self, generator: FastPath) -> None:
        """Refer to *generator*, the same as before."""
        self._ref = weakref.ref(generator)

    def __call__(self) -> Any:
        """Return the generator; None if it was dropped."""
        return self._ref()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ref(), name)


class Context(NamedTuple):
    """The surroundings of one generator's members.

    Attributes:
        reference: to the generator.
        random: seeded again in a forked child.
    """

    reference: Reference
    config: PoolConfig
    clock: Clock
    guard: ForkGuard
    rules: ClockRules
    random: random.Random
    counts: Counts
    clock_backs: ClockBackLog

    @property
    def path(self) -> FastPath:
        """The generator, for members, which must not refer to it strongly."""
        return cast(FastPath, self.reference)

    @property
    def longest_wait_ms(self) -> int:
        """Longest time until the lanes of a claimed worker id open, in ms: a floor, to the end of its tick."""
        return self.config.floor_ms + self.config.layout.tick_ms

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return self.clock.time_ns() // 1_000_000
