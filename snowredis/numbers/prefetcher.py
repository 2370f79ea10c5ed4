"""Fetch segments in a thread, before they are needed; callers wait for it only if it is late.

Only this thread talks to Redis, so that no signal handler, finalizer or forked child meets half a conversation.
"""

from __future__ import annotations

import _thread
import logging
import queue
from collections import deque
from collections.abc import Callable
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.numbers.fetcher import REPORT_S, Fetcher, Segment
from snowredis.process.clock import MAX_SLEEP_S, Clock
from snowredis.process.threads import start_thread

log = logging.getLogger("snowredis")

# between two attempts while Redis does not hand out segments: the first, and the longest
RETRY_S, MAX_RETRY_S = 0.05, 1.0
# how long a report may be put off while a caller waits for a segment
MOST_OVERDUE_S = 2.0


class Waiter:
    """One wait of one caller. Unlike threading.Event, safe in a signal handler that interrupts another wait."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait for notify(), or for *seconds*."""
        self._lock.acquire(timeout=seconds)

    def notify(self) -> None:
        """End the wait. Called once."""
        self._lock.release()


class Threads:
    """Way in which the prefetcher starts a thread, sleeps and lets callers wait; the simulation has another."""

    new_waiter: Callable[[], Any] = Waiter
    new_lock: Callable[[], Any] = staticmethod(_thread.allocate_lock)

    def __init__(self) -> None:
        # put() is safe in signal handlers and finalizers
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self, run: Callable[[], None]) -> None:
        """Run *run* in a daemon thread."""
        start_thread(run, "snowredis-segments")

    def ident(self) -> int:
        """Return which thread this is."""
        return _thread.get_ident()

    def sleep(self, seconds: float) -> None:
        """Sleep in the prefetcher's thread until wake(), or for *seconds*."""
        try:
            self._wakes.get(timeout=max(0.0, seconds))
            while True:
                self._wakes.get_nowait()
        except queue.Empty:
            pass

    def wake(self) -> None:
        """End the sleep of the prefetcher's thread, or its next one."""
        self._wakes.put(None)


class Prefetcher:
    """Keeps a segment at hand.

    Args:
        fetcher: asks the servers; only the thread uses it.
        clock: the monotonic one is read.
        threads: starts the thread.

    Attributes:
        ready: segments that nobody uses yet, the oldest first.
        hungry: whether a segment shall be fetched if none is ready, though nobody waits.
        wanted: how many numbers the callers that wait need at once.
        began_s: when the current segment began to be used, on the monotonic clock; None: there was none yet.
        failures: how many attempts failed; error: why the newest one did, None if it did not.
    """

    def __init__(self, fetcher: Fetcher, clock: Clock, threads: Threads) -> None:
        self.fetcher, self._clock, self._threads = fetcher, clock, threads
        self.ready: deque[Segment] = deque()
        self.hungry = False
        self.wanted = 0
        self.began_s: float | None = None
        self.failures = 0
        self.error: Exception | None = None
        self._waiters: deque[Any] = deque()
        # the thread's; replaced by another, it ends
        self._run_token: object = None
        # held by a thread while it is the one that talks: callers may have started two at the same moment
        self._talking = threads.new_lock()
        self._thread_ident = 0
        self._stopped = False
        self._report_at_s = clock.monotonic() + REPORT_S
        self._retry_s = self._retry_at_s = 0.0
        # counts renew()
        self._era = 0

    def renew(self) -> None:
        """Drop what is ready or under way, and go on under new names: a clone of this process may have the old ones."""
        self._era += 1
        self.ready.clear()
        self.fetcher.begin()

    def wake(self) -> None:
        """Let the thread look for something to do; start it if there is none."""
        if self._run_token is None and not self._stopped:
            token = self._run_token = object()
            try:
                self._threads.start(lambda: self._run(token))
            except RuntimeError:
                # no more threads, or the interpreter is about to end
                self._run_token = None
                raise
        self._threads.wake()

    def wait(self, seconds: float) -> None:
        """Wait until a segment is ready, or an attempt failed; MAX_SLEEP_S or *seconds* at most.

        Raises StoreUnavailable in the thread itself, where a finalizer may ask for a number.
        """
        if self._threads.ident() == self._thread_ident:
            raise StoreUnavailable(
                "",
                "a finalizer asked for a number in the thread that fetches segments; make numbers elsewhere",
            )
        waiter = self._threads.new_waiter()
        self._waiters.append(waiter)
        self.wake()
        if not self.ready:
            waiter.wait(min(seconds, MAX_SLEEP_S))

    def stop(self) -> None:
        """End the thread, soon. Idempotent; does not block."""
        self._stopped, self._run_token = True, None
        self._threads.wake()

    def _run(self, token: object) -> None:
        with self._talking:
            self._thread_ident = self._threads.ident()
            try:
                while self._run_token is token:
                    self._threads.sleep(self.step())
            finally:
                self._thread_ident = 0
                if self._run_token is token:
                    # by an error that is no Exception: the next caller starts another thread
                    self._run_token = None
                if self._stopped:
                    self.fetcher.close()

    def step(self) -> float:
        """Do what is to be done now. Returns the seconds until there is something to do again."""
        now_s = self._clock.monotonic()
        busy = not self.ready and bool(self.hungry or self._waiters)
        if now_s >= self._report_at_s + (MOST_OVERDUE_S if busy else 0.0):
            self._report_at_s = now_s + self.fetcher.report()
            return 0.0
        if busy:
            if now_s < self._retry_at_s:
                return self._retry_at_s - now_s
            era = self._era
            # in a tight loop no other thread runs until a caller waits, so this is seen here
            used_up_in_s = now_s - self.began_s if self._waiters and self.began_s is not None else None
            try:
                segment = self.fetcher.fetch(self.wanted, used_up_in_s)
            except Exception as error:  # noqa: BLE001 - raised in the callers that wait
                self.error = error
                self.failures += 1
                self._retry_s = min(max(RETRY_S, 2 * self._retry_s), MAX_RETRY_S)
                self._retry_at_s = self._clock.monotonic() + self._retry_s
                self._notify()
                return self._retry_s
            self._retry_s, self.error = 0.0, None
            if era == self._era:
                self.ready.append(segment)
                self.wanted = 0
                self._notify()
            return 0.0
        return self._report_at_s - now_s

    def _notify(self) -> None:
        while self._waiters:
            self._waiters.popleft().notify()


def again(error: Exception) -> Exception:
    """Return a copy of *error* that can be raised in several threads; itself, if that is not possible."""
    try:
        copy = type(error)(*error.args)
    except Exception:  # noqa: BLE001 - an error of the bound, of any kind
        return error
    copy.__cause__ = error.__cause__
    return copy
