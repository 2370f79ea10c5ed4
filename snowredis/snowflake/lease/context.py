"""Objects that the members of one generator share: counters, surroundings, view of the pool, conversation with it.

The counters are for metrics: counted where the generator waits or logs, never for each id.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar

from snowredis.core.lanes import ClockRules, Wait
from snowredis.errors import ClockSkewed, LayoutError, LayoutMismatch, SnowredisError, StoreUnavailable
from snowredis.process.clock import Clock
from snowredis.process.exit import EXIT
from snowredis.process.fork import ForkGuard
from snowredis.process.log import log
from snowredis.process.names import boot_id
from snowredis.snowflake.protocol.messages import Reply, Seen
from snowredis.snowflake.protocol.pool_config import PoolConfig

# --- counters ----------------------------------------------------------------------------------------

# the reactions to a clock that went back, the mildest first, and their text in the log
CLOCK_BACK_STEPS = {
    "wait": "waiting",
    "namespace": "using another namespace",
    "worker": "using another worker id",
    "refusal": "refusing ids",
}
# what a call waits for: a worker id, floor included; the next tick, when the sequence is exhausted; a clock that went
# back, within the tolerance
WAITS = ("claim", "ceiling", "clock")
# why a claim got no worker id: all are leased; the pool was made with other settings; this host's clock is behind every
# available one; Redis did not reply, or refused
CLAIM_REFUSALS = ("full", "mismatch", "clock", "unavailable")


@dataclass(slots=True)
class Counts:
    """Counters since the generator was made, or since the fork. Approximate where several threads count at once.

    Attributes:
        waits, wait_s: how often calls waited for each of WAITS, and about how long in all.
        clock_backs: how often the clock went back, for each of CLOCK_BACK_STEPS.
        claims: worker ids that were claimed.
        renewals, renewals_failed: renewals with a reply, and without one.
        claims_refused: claims that gave up, for each of CLAIM_REFUSALS; of unavailable, each StoreUnavailable.
        leases_lost: leases that a renewal or a claim found to be lost.
        heartbeat_s: round trips of the renewals with a reply, in all.
    """

    claims: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    leases_lost: int = 0
    heartbeat_s: float = 0.0
    waits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAITS, 0))
    wait_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAITS, 0.0))
    clock_backs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLOCK_BACK_STEPS, 0))
    claims_refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLAIM_REFUSALS, 0))

    def reset(self) -> None:
        """Set all to 0, in a forked child."""
        Counts.__init__(self)

    def waited(self, what: str, wait_s: float) -> None:
        """Count a wait for *what*, one of WAITS."""
        self.waits[what] += 1
        self.wait_s[what] += wait_s


class CallLog:
    """Counts and logs why calls waited, and why they got no id.

    Args:
        monotonic: returns the seconds since some moment.
        remembered_s: for how long an error is told to viewers: a process that is asked again raises it again.
    """

    def __init__(self, pool: str, counts: Counts, monotonic: Callable[[], float], remembered_s: float) -> None:
        self._pool, self._counts, self._monotonic, self._remembered_s = pool, counts, monotonic, remembered_s
        # the ids made at the last wait for the clock, or refusal
        self._noted = -1
        # name of the last error, ids made until then, and when
        self._last = ("", -1, 0.0)

    def clock_back(self, behind_ms: float, step: str, ids_made: int) -> None:
        """Count and log the reaction *step*, one of CLOCK_BACK_STEPS, to a clock that went back.

        A wait or a refusal counts once for the same number of *ids_made*: as long as no id was made since.
        """
        if step in ("wait", "refusal"):
            if self._noted == ids_made:
                return
            self._noted = ids_made
        if step == "wait":
            self._counts.waited("clock", behind_ms / 1000)
        self._counts.clock_backs[step] += 1
        log.warning("pool %s: the clock went back by %d ms: %s", self._pool, behind_ms, CLOCK_BACK_STEPS[step])

    def wait(self, wait: Wait, ids_made: int) -> None:
        """Count a wait that is about to begin: for the clock, or for the next tick."""
        if wait.clock_back:
            self.clock_back(wait.ms, "wait", ids_made)
        elif wait.ms:
            self._counts.waited("ceiling", wait.ms / 1000)

    def refused(self, error: SnowredisError, ids_made: int) -> None:
        """Note that a call raised *error*; log what nothing else logs, once until an id is made again."""
        name, is_new = type(error).__name__, self._last[:2] != (type(error).__name__, ids_made)
        self._last = (name, ids_made, self._monotonic())
        if is_new and isinstance(error, ClockSkewed | LayoutMismatch | LayoutError):
            log.error("pool %s: no ids: %s", self._pool, error)

    def refusal(self, ids_made: int) -> str:
        """Return the name of the last error if no id was made since; "" if there is none, or it is old."""
        name, made, at_s = self._last
        return name if made == ids_made and self._monotonic() - at_s < self._remembered_s else ""


# --- surroundings ------------------------------------------------------------------------------------


class WeakGenerator:
    """A weak reference to a generator, whose attributes it has.

    Weak: in a cycle of references, a generator that nobody uses any more would go on renewing its lease until the
    garbage collector runs. That clears weak references before it calls finalizers, which may still use the generator:
    so it can be renewed.
    """

    __slots__ = ("_ref",)

    def __init__(self, generator: object) -> None:
        self.renew(generator)

    def renew(self, generator: object) -> None:
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
    calls: CallLog

    @property
    def longest_wait_ms(self) -> int:
        """Longest time until the lanes of a claimed worker id open, in ms: a floor, to the end of its tick."""
        # a floor by a clock of Redis that is ahead, as it may be, or for a reply that was late
        return self.config.floor_ms + self.config.horizon_ms(0) + self.config.layout.tick_ms

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return self.clock.time_ns() // 1_000_000


# --- view of the pool -----------------------------------------------------------------------------------

# how much wall clock and monotonic clock may differ since a reply, and by drift: more was a step or a stop
CLOCKS_AGREE_S = 1.0
CLOCK_DRIFT = 0.001


class PoolView:
    """The newest reply of one generator's pool.

    Attributes:
        seen: the state of the pool, which every request carries (step 3, lose).
        floor_ms: the pool's floor, ms since 1970.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seen = Seen()
        self.floor_ms = 0
        # the Redis clock, ms since 1970, minus our monotonic clock; None before the first reply
        self._redis_lead_ms: float | None = None
        # wall clock and monotonic clock at the last reply that granted something, long ago if there was none, and the
        # run of the kernel; "" if that was unknown, as without a free descriptor
        self._clocks_s, self._boot_id = (0.0, -1e9), ""

    def learn(self, reply: Reply, sent_s: float) -> None:
        """Store what *reply* shows, to a request that was sent at *sent_s* of the monotonic clock."""
        self.seen, self.floor_ms = reply.seen, reply.floor_ms
        # the Redis clock was read during the round trip. A slow reply says little, so it only bounds what is known
        least_ms = reply.redis_ms - self._context.clock.monotonic() * 1000
        most_ms = reply.redis_ms - sent_s * 1000
        known_ms = (least_ms + most_ms) / 2 if self._redis_lead_ms is None else self._redis_lead_ms
        self._redis_lead_ms = min(max(known_ms, least_ms), most_ms)

    def log_alarm(self, reply: Reply) -> None:
        """Log the alarm that *reply* raises, if any. Called when all that the reply granted is stored."""
        if reply.alarm:
            log.critical("pool %s: ALARM: %s", self._context.config.name, reply.alarm.text)

    @property
    def offset_ms(self) -> int:
        """Return the lead of this host's clock over the Redis clock now, in ms; 0 before the first reply."""
        if self._redis_lead_ms is None:
            return 0
        return self._context.now_ms() - round(self._context.clock.monotonic() * 1000 + self._redis_lead_ms)

    def note_granted(self, clocks_s: tuple[float, float] | None = None) -> tuple[float, float]:
        """Note that a reply granted something now; return wall clock and monotonic clock, in s.

        Or that a lease was taken over, whose process had its last reply when the clocks showed *clocks_s*.
        """
        now_s = self._context.clock.monotonic()
        self._clocks_s, self._boot_id = clocks_s or (self._context.clock.time_ns() / 1e9, now_s), boot_id()
        return self._clocks_s

    @property
    def clocks_agree(self) -> bool:
        """True if this machine ran without a stop since the last reply, as far as its clocks can tell.

        After a snapshot of the machine was resumed, or the machine was suspended, they differ.
        """
        here = boot_id()
        return self.agree_since(self._clocks_s) and (not here or not self._boot_id or here == self._boot_id)

    def agree_since(self, clocks_s: tuple[float, float]) -> bool:
        """Return whether wall clock and monotonic clock went on alike since they showed *clocks_s*."""
        wall_s, steady_s = clocks_s
        passed_s = self._context.clock.monotonic() - steady_s
        difference_s = abs(self._context.clock.time_ns() / 1e9 - wall_s - passed_s)
        return difference_s <= CLOCKS_AGREE_S + passed_s * CLOCK_DRIFT

    @property
    def renewed_ago_s(self) -> float:
        """Time since the last renewal or claim that succeeded, also that of a process whose lease was taken over."""
        return self._context.clock.monotonic() - self._clocks_s[1]


# --- conversation with the store -----------------------------------------------------------------------

# longer than any conversation: a claim is sent at most twice, and connects within a second and reads within another
LOCK_LIMIT_S = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class Conversation:
    """One conversation with the store at a time; a second one on the same thread is refused.

    Attributes:
        lock: held during a conversation; a forked child gets another.
        busy: the lock, while the thread that holds it talks to the store; else None.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.lock = threading.RLock()
        self.busy: Any = None
        self._thread = 0
        self._at_end: deque[Callable[[], None]] = deque()

    @property
    def is_here(self) -> bool:
        """Return whether this very thread talks to the store."""
        return self.busy is self.lock and self._thread == threading.get_ident()

    def run(self, talk: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Call *talk*, which talks to the store, while the lock is held; return its result.

        A signal handler or finalizer that interrupts a conversation of its own thread is refused: it could wait
        forever, and a second request could get the reply to the first. So is another greenlet of the thread, where the
        lock was made before gevent replaced the locks of threads. The wait for another thread is bounded: a handler
        may have interrupted a thread that holds the generator's lock, and a finalizer in the other thread may wait for
        that lock.

        Raises:
            StoreUnavailable: refused, or another thread held the lock for LOCK_LIMIT_S.
        """
        while True:
            lock, acquired, is_last = self.lock, False, sys.is_finalizing()
            try:
                # acquired and noted in one step; locked() of process/threads.py says why
                (acquired,) = map(lock.acquire, (True,), (0 if is_last else LOCK_LIMIT_S,))
                if acquired or is_last:
                    self._refuse_second(lock)
                    try:
                        self.busy = lock
                        talked = talk(*args, **named)
                    finally:
                        # a child that was forked in between has another lock, which may be in use already
                        if self.busy is lock:
                            try:
                                # part of the conversation: no signal handler does the same in the middle of it
                                self._run_at_end()
                            finally:
                                self.busy = None
                            EXIT.run_postponed()
                    return talked
                if lock is self.lock:
                    reason = f"another thread has been talking to Redis for over {LOCK_LIMIT_S:.0f} s"
                    raise StoreUnavailable(self._where, reason)
                # forked since the lock was read: the thread that held it does not exist in this child
            finally:
                if acquired:
                    lock.release()
                    if self._at_end and self.busy is None:
                        # added by a thread that saw this conversation just now
                        self.at_end(_nothing)

    def _refuse_second(self, lock: Any) -> None:
        if self.busy is lock:
            raise StoreUnavailable(
                self._where,
                "a signal handler or finalizer asked for an id while its own thread was talking to Redis; or another "
                "greenlet did: gevent and eventlet have to patch the process before snowredis is imported",
            )
        self._thread = threading.get_ident()

    def at_end(self, action: Callable[[], None]) -> None:
        """Call *action* now, or after the conversation that is under way, in this thread or in another one."""
        self._at_end.append(action)
        if self.busy is not self.lock:
            # if another thread begins one meanwhile, that calls it
            with contextlib.suppress(StoreUnavailable):
                self.run(_nothing)

    def _run_at_end(self) -> None:
        while self._at_end:
            self._at_end.popleft()()

    def after_fork(self) -> None:
        """Replace the lock, in a forked child: the thread that holds it may not exist here."""
        self.lock = threading.RLock()
        self._at_end.clear()


def _nothing() -> None:
    """Do nothing, in a conversation for what is done at its end."""
