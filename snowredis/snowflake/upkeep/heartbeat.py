"""The heartbeat of one generator: a thread that renews its lease, or claims another. A beat: LeaseLifecycle.beat()."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from snowredis.process.exit import EXIT
from snowredis.process.fork import ForkGuard
from snowredis.process.log import log
from snowredis.process.threads import locked, may_start_threads, start_thread
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.upkeep.pace import Pace

# a thread that waits ends within a millisecond; one that talks to Redis may need seconds
_LONGEST_WAIT_S = 0.2
# after a beat that raised
_AGAIN_S = 0.5


class Heartbeat:
    """Calls ``_beat()`` of a generator until it is stopped; calls *abandon* if that was dropped without close().

    ``_beat()`` renews or replaces the lease as needed, and returns the seconds until the next call.

    A forked child may inherit it, as a greenlet of gevent: there it ends.
    """

    def __init__(self, generator: Callable[[], Any], abandon: Callable[[], None], guard: ForkGuard) -> None:
        self._guard, self._generation = guard, guard.generation
        # released by stop(), which a signal handler may call at any moment: setting a threading.Event is not reentrant
        self._stopping = threading.Lock()
        self._stopping.acquire()
        # held until the thread has ended
        self._running, self._thread = threading.Lock(), 0
        self._running.acquire()
        self._generator, self._abandon = generator, abandon

    def start(self, first_s: float, name: str) -> None:
        """Start a thread called *name*, whose first call comes after *first_s*.

        Raises:
            RuntimeError: the system refuses a thread.
        """
        start_thread(lambda: self._run(first_s), name)
        EXIT.hold(self)

    @property
    def has_ended(self) -> bool:
        """True once the thread has ended, whoever ended it."""
        return not self._running.locked()

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
            self._running.release()

    def _beat(self, delay_s: float) -> None:
        while not self._stopping.acquire(timeout=delay_s):
            if self._guard.forked_since(self._generation):
                return
            generator = self._generator()
            if generator is None:
                EXIT.drop(self)
                self._abandon()
                return
            try:
                tracing: Any = sys.modules.get("opentelemetry.context")
                # each command would be a trace of its own; while another thread imports it, nothing is traced
                if hasattr(tracing, "attach"):
                    tracing.attach(tracing.set_value("suppress_instrumentation", True))
                # a handler of logging that waits for its own server would keep the next renewal waiting
                with log.kept():
                    delay_s = generator._beat()
            except BaseException as error:
                # gevent ends a greenlet so
                if type(error).__name__ == "GreenletExit":
                    raise
                # whoever raised it: the lease of a process that lives has to be renewed
                delay_s = _AGAIN_S
                with contextlib.suppress(BaseException):
                    log.exception("the heartbeat failed, and goes on")
            del generator


class HeartbeatThread:
    """One thread at most, where the system allows one.

    Attributes:
        heartbeat: what the thread runs; None if there is no thread.
    """

    def __init__(self, context: Context, leases: LeaseManager, pace: Pace) -> None:
        self._context, self._leases, self._pace = context, leases, pace
        self.heartbeat: Heartbeat | None = None
        # whether a refused thread was logged
        self._refused = False

    @property
    def runs(self) -> bool:
        """True if a thread renews the lease, or claims another one."""
        return self.heartbeat is not None and not self.heartbeat.has_ended

    def start(self, first_s: float | None = None) -> None:
        """Start the thread, unless one runs or the clock is a test clock.

        Its first call comes after *first_s*.

        Called after each claim and each renewal that a call needs: where the system refuses a thread, leases are
        renewed inside next_id() only, until it allows one. A warning says so, once.
        """
        try:
            self._start(first_s)
        except BaseException:
            # what the handler of a signal raised, such as a limit of time, ends the call that was interrupted here, and
            # not the renewals of a lease that lives on
            self._start(first_s)
            raise

    def _start(self, first_s: float | None) -> None:
        if self.runs or not self._context.clock.background:
            return
        heartbeat = Heartbeat(self._context.weak_generator, self._leases.abandon, self._context.guard)
        try:
            locked(self._context.weak_generator._lock, self._take, heartbeat)
            if self.heartbeat is heartbeat:
                EXIT.arm()
                first_s = self._pace.beat_in_s(is_first=True) if first_s is None else first_s
                heartbeat.start(first_s, f"snowredis-{self._context.config.name}")
        except BaseException as error:
            # a heartbeat without a thread would count as one for good
            heartbeat.stop()
            if self.heartbeat is heartbeat:
                self.heartbeat = None
            if not isinstance(error, RuntimeError):
                raise
            text = "no heartbeat thread (%s): leases are renewed only while ids are made"
            is_news = not self._refused and may_start_threads()
            log.log(logging.WARNING if is_news else logging.DEBUG, text, error)
            self._refused = True

    def _take(self, heartbeat: Heartbeat) -> None:
        if not self.runs and not self._leases.closed:
            self.heartbeat = heartbeat
