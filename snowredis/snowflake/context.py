"""Objects that the members of one generator share: its surroundings, and the lock of its calls to the store."""

from __future__ import annotations

import functools
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from snowredis.core.lanes import ClockRules
from snowredis.errors import StoreUnavailable
from snowredis.process.clock import Clock
from snowredis.process.exit import EXIT
from snowredis.process.fork import ForkGuard
from snowredis.process.threads import NotAcquired, locked
from snowredis.snowflake.counts import ClockBackLog, Counts, RefusalLog
from snowredis.snowflake.fast_path import FastPath
from snowredis.snowflake.protocol import PoolConfig

T = TypeVar("T")

# longer than any conversation: a claim is sent at most twice, and connects within a second and reads within another
LOCK_LIMIT_S = 5.0


class Conversation:
    """One conversation with the store at a time; a second one on the same thread is refused.

    Args:
        where: the store's address, for errors.

    Attributes:
        lock: held during a conversation; a forked child gets another.
        busy: the lock, while the thread that holds it talks to the store; else None.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.lock = threading.RLock()
        self.busy: Any = None
        self._thread = 0
        self._at_end: Callable[[], None] | None = None

    @property
    def is_here(self) -> bool:
        """Return whether this very thread talks to the store."""
        return self.busy is self.lock and self._thread == threading.get_ident()

    def run(self, talk: Callable[[], T]) -> T:
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
            lock = self.lock
            try:
                return locked(lock, functools.partial(self._run, lock, talk), LOCK_LIMIT_S)
            except NotAcquired:
                if lock is self.lock:
                    raise StoreUnavailable(
                        self._where, f"another thread has been talking to Redis for over {LOCK_LIMIT_S:.0f} s"
                    ) from None
                # forked since the lock was read: the thread that held it does not exist in this child

    def _run(self, lock: Any, talk: Callable[[], T]) -> T:
        if self.busy is lock:
            raise StoreUnavailable(
                self._where,
                "a signal handler or finalizer asked for an id while its own thread was talking to Redis; or another "
                "greenlet did: gevent and eventlet have to patch the process before snowredis is imported",
            )
        self._thread = threading.get_ident()
        try:
            self.busy = lock
            return talk()
        finally:
            # a child that was forked in between has another lock, which may be in use already
            if self.busy is lock:
                self.busy = None
                self._run_at_end()
                EXIT.run_postponed()

    def at_end(self, action: Callable[[], None]) -> None:
        """Call *action* now, or after the conversation that is under way, in this thread or in another one."""
        self._at_end = action
        if self.busy is not self.lock:
            self._run_at_end()

    def _run_at_end(self) -> None:
        action, self._at_end = self._at_end, None
        if action is not None:
            action()

    def after_fork(self) -> None:
        """Replace the lock, in a forked child: the thread that holds it may not exist here."""
        self.lock = threading.RLock()
        self._at_end = None


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
    refusals: RefusalLog

    @property
    def generator(self) -> FastPath:
        """The generator, for members, which must not refer to it strongly."""
        return cast(FastPath, self.reference)

    @property
    def longest_wait_ms(self) -> int:
        """Longest time until the lanes of a claimed worker id open, in ms: a floor, to the end of its tick."""
        return self.config.floor_ms + self.config.layout.tick_ms

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""
        return self.clock.time_ns() // 1_000_000
