"""A thread that calls a generator now and then, as long as it exists. It refers to the generator weakly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol

from snowredis.process.exit import EXIT
from snowredis.process.fork import ForkGuard
from snowredis.process.threads import start_thread

# a thread that waits ends within a millisecond; one that talks to Redis may need seconds
_LONGEST_WAIT_S = 0.2


class HasBeat(Protocol):
    """An object that the heartbeat thread calls: a generator."""

    def _beat(self) -> float:
        """Renew or replace the lease as needed; return the seconds until the next call. Must not raise."""


class Heartbeat:
    """Calls ``_beat()`` of *owner* until it is stopped; calls *abandon* if the owner was dropped without close().

    A forked child may inherit it, as a greenlet of gevent: there it ends.
    """

    def __init__(self, owner: Callable[[], HasBeat | None], abandon: Callable[[], None], guard: ForkGuard) -> None:
        self._guard, self._generation = guard, guard.generation
        self._stopped = threading.Event()
        # held until the thread ends
        self._running = threading.Lock()
        self._thread = 0
        self._owner, self._abandon = owner, abandon

    def start(self, first_s: float, name: str) -> None:
        """Start a thread called *name*, whose first call comes after *first_s*.

        Raises:
            RuntimeError: the system refuses a thread.
        """
        self._running.acquire()
        start_thread(lambda: self._run(first_s), name)
        EXIT.hold(self)

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the thread to end, after stop(): Python aborts if an interpreter ends that has another thread.

        Blocks for 0.2 s at most: a finalizer or a signal handler may have interrupted what the thread waits for, and
        in a child that was forked just now there is no thread.
        """
        EXIT.drop(self)
        if self._thread == threading.get_ident():
            return
        # gevent raises it in its hub, which cannot wait
        with contextlib.suppress(AssertionError):
            if self._running.acquire(timeout=_LONGEST_WAIT_S):
                self._running.release()

    def close(self) -> None:
        """End, at exit. Give the lease back if the owner was dropped since the last beat: nobody else would."""
        self.stop()
        if self._owner() is None:
            self._abandon()
        self.join()

    def _run(self, delay_s: float) -> None:
        self._thread = threading.get_ident()
        try:
            self._beat(delay_s)
        finally:
            # last, so that the thread has ended when another one can run
            self._running.release()

    def _beat(self, delay_s: float) -> None:
        while not self._stopped.wait(delay_s):
            self._guard.check()
            if self._guard.generation != self._generation:
                return
            owner = self._owner()
            if owner is None:
                EXIT.drop(self)
                self._abandon()
                return
            delay_s = owner._beat()
            del owner
