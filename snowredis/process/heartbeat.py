"""The heartbeat of a generator: a thread that calls it again and again. What a beat does: LeaseLifecycle.beat()."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from snowredis.process.exit import EXIT
from snowredis.process.fork import ForkGuard
from snowredis.process.log import log
from snowredis.process.threads import start_thread

# a thread that waits ends within a millisecond; one that talks to Redis may need seconds
_LONGEST_WAIT_S = 0.2
# after a beat that raised
_AGAIN_S = 0.5


class Beating(Protocol):
    """An object that the heartbeat thread calls: a generator."""

    def _beat(self) -> float:
        """Renew or replace the lease as needed; return the seconds until the next call."""


class Heartbeat:
    """Calls ``_beat()`` of a generator until it is stopped; calls *abandon* if that was dropped without close().

    A forked child may inherit it, as a greenlet of gevent: there it ends.
    """

    def __init__(self, generator: Callable[[], Beating | None], abandon: Callable[[], None], guard: ForkGuard) -> None:
        self._guard, self._generation = guard, guard.generation
        # released by stop(), which a signal handler may call at any moment: setting a threading.Event is not reentrant
        self._stopping = threading.Lock()
        self._stopping.acquire()
        # this lock is held until the thread ends
        self._running = threading.Lock()
        self._thread = 0
        self._generator, self._abandon = generator, abandon

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
        # released already: this was called before
        with contextlib.suppress(RuntimeError):
            self._stopping.release()

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
        """End, at exit. Release the lease if the generator was dropped since the last beat: nobody else would."""
        self.stop()
        if self._generator() is None:
            self._abandon()
        self.join()

    def _run(self, delay_s: float) -> None:
        self._thread = threading.get_ident()
        try:
            self._beat(delay_s)
        finally:
            # released last, so that the thread has ended when another one can run
            self._running.release()

    def _beat(self, delay_s: float) -> None:
        while not self._stopping.acquire(timeout=delay_s):
            if self._guard.forked_since(self._generation):
                return
            if tracing := sys.modules.get("opentelemetry.context"):
                # each command would be a trace of its own
                tracing.attach(tracing.set_value("suppress_instrumentation", True))
            generator = self._generator()
            if generator is None:
                EXIT.drop(self)
                self._abandon()
                return
            try:
                delay_s = generator._beat()
            except (Exception, SystemExit):
                # whoever raised it: the lease of a process that lives has to be renewed
                delay_s = _AGAIN_S
                log.exception("the heartbeat failed, and goes on")
            del generator
