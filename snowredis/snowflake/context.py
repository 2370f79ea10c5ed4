"""Objects that the members of one generator share: its surroundings, and its view of the pool."""

from __future__ import annotations

import logging
import random
import weakref
from typing import Any, NamedTuple, cast

from snowredis.core.lanes import ClockRules
from snowredis.process.clock import Clock
from snowredis.process.fork import ForkGuard
from snowredis.process.names import boot_id
from snowredis.snowflake.counts import ClockBackLog, Counts, RefusalLog
from snowredis.snowflake.fast_path import FastPath
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.replies import Reply, Seen

log = logging.getLogger("snowredis")

# how much wall clock and monotonic clock may differ since a reply, and by drift: more was a step or a stop
CLOCKS_AGREE_S = 1.0
CLOCK_DRIFT = 0.001


class WeakGenerator:
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
        weak_generator: the generator, for members, which must not refer to it strongly.
        random: seeded again in a forked child.
    """

    weak_generator: WeakGenerator
    config: PoolConfig
    clock: Clock
    guard: ForkGuard
    rules: ClockRules
    random: random.Random
    counts: Counts
    clock_backs: ClockBackLog
    refusals: RefusalLog

    @property
    def generator(self) -> FastPath:
        """The generator, for members, which must not refer to it strongly."""
        return cast(FastPath, self.weak_generator)

    @property
    def longest_wait_ms(self) -> int:
        """Longest time until the lanes of a claimed worker id open, in ms: a floor, to the end of its tick."""
        # a floor by a clock of Redis that is ahead, as it may be, or for a reply that was late
        return self.config.floor_ms + self.config.horizon_ms(0) + self.config.layout.tick_ms

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return self.clock.time_ns() // 1_000_000


class PoolView:
    """The newest reply of one generator's pool.

    Attributes:
        seen: the state of the pool, which every request carries (step 3, lose).
        floor_ms: the pool's floor, ms since 1970.
        renewed_at_s: the monotonic clock at the last reply that granted something.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seen = Seen()
        self.floor_ms = 0
        # the Redis clock, ms since 1970, minus our monotonic clock; None before the first reply
        self._redis_lead_ms: float | None = None
        self.renewed_at_s = -1e9
        # wall clock and monotonic clock at the last reply that granted something, and the run of the kernel at a claim
        self._clocks_s, self._boot_id = (0.0, 0.0), ""

    def learn(self, reply: Reply, sent_s: float) -> None:
        """Store what *reply* shows, to a request that was sent at *sent_s* of the monotonic clock."""
        self.seen, self.floor_ms = reply.seen, reply.floor_ms
        # the Redis clock was read during the round trip. A slow reply says little, so it only bounds what is known
        least_ms = reply.redis_ms - self._context.clock.monotonic() * 1000
        most_ms = reply.redis_ms - sent_s * 1000
        known_ms = (least_ms + most_ms) / 2 if self._redis_lead_ms is None else self._redis_lead_ms
        self._redis_lead_ms = min(max(known_ms, least_ms), most_ms)
        if reply.alarm:
            log.critical("pool %s: ALARM: %s (ms since 1970)", self._context.config.name, reply.alarm.text)

    @property
    def offset_ms(self) -> int:
        """Return the lead of this host's clock over the Redis clock now, in ms; meaningless before the first reply."""
        return self._context.now_ms() - round(self._context.clock.monotonic() * 1000 + (self._redis_lead_ms or 0.0))

    def note_renewed(self) -> tuple[float, float]:
        """Note that a reply granted something; return wall clock and monotonic clock, in s."""
        self.renewed_at_s = self._context.clock.monotonic()
        self._clocks_s = (self._context.clock.time(), self.renewed_at_s)
        return self._clocks_s

    def note_claimed(self) -> tuple[float, float]:
        """Note, as note_renewed() does, that a worker id was claimed."""
        self._boot_id = boot_id()
        return self.note_renewed()

    def note_taken(self, clocks_s: tuple[float, float]) -> None:
        """Note that a lease was taken over, whose process had its last reply when the clocks showed *clocks_s*."""
        self._clocks_s, self._boot_id = clocks_s, boot_id()

    @property
    def clocks_agree(self) -> bool:
        """True if this machine ran without a stop since the last reply, as far as its clocks can tell.

        After a snapshot of the machine was resumed, or the machine was suspended, they differ.
        """
        return self.agree_since(self._clocks_s) and boot_id() == self._boot_id

    def agree_since(self, clocks_s: tuple[float, float]) -> bool:
        """Return whether wall clock and monotonic clock went on alike since they showed *clocks_s*."""
        wall_s, steady_s = clocks_s
        passed_s = self._context.clock.monotonic() - steady_s
        difference_s = abs(self._context.clock.time() - wall_s - passed_s)
        return difference_s <= CLOCKS_AGREE_S + passed_s * CLOCK_DRIFT

    @property
    def renewed_ago_s(self) -> float:
        """Time since the last renewal or claim that succeeded."""
        return self._context.clock.monotonic() - self.renewed_at_s

    def just_renewed(self) -> bool:
        """Return whether the last renewal or claim is so recent that another renewal would change nothing."""
        return self.renewed_ago_s < min(0.2, self._context.config.heartbeat_ms / 2000)
