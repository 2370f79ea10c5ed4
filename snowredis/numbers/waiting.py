"""Prefetcher: fetches segments in a thread, before they are needed; callers wait only if it is late.

Only this thread talks to Redis, so that no signal handler, finalizer or forked child meets half a conversation.
"""

from __future__ import annotations

import _thread
import contextlib
import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.numbers.fetcher import REPORT_S, Fetcher
from snowredis.numbers.path import Segment
from snowredis.process.clock import MAX_SLEEP_S, Clock
from snowredis.process.coroutines import wait_for
from snowredis.process.threads import start_thread

# the next segment is fetched when this part of one is used up: a process that needs few numbers fetches one only
HEAD = 10
# between two attempts while Redis does not hand out segments: the first, and the longest
RETRY_S, MAX_RETRY_S = 0.05, 1.0
# a coroutine looks again after this time: its loop has one timer for each that waits
MAX_ASYNC_WAIT_S = 1.0
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


class AsyncWaiter:
    """One wait of one coroutine."""

    def __init__(self) -> None:
        self._notified: Future[None] = Future()

    async def wait(self, seconds: float) -> None:
        """Wait for notify(), or for *seconds*. Does not block the event loop."""
        await wait_for(self._notified, seconds)

    def notify(self) -> None:
        """End the wait. Called once, in any thread."""
        with contextlib.suppress(InvalidStateError):
            self._notified.set_result(None)


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
        ahead: fetch segments before callers wait for them.

    Attributes:
        ready: the parts of segments that nobody uses yet, the oldest first.
        failures: how many attempts failed; error: why the newest one did, None if it did not.
    """

    def __init__(self, fetcher: Fetcher, clock: Clock, threads: Threads, *, ahead: bool = True) -> None:
        self.fetcher, self._clock, self._threads = fetcher, clock, threads
        self.ready: deque[Segment] = deque()
        self._ahead, self._fetches_ahead = ahead, False
        self.failures = 0
        self.error: Exception | None = None
        # waiter of a caller -> how many numbers it needs at once
        self._waiters: dict[Any, int] = {}
        # the thread's; replaced by another, it ends
        self._run_token: object = None
        # held by a thread while it is the one that talks: callers may have started two at the same moment
        self._run_lock = threads.new_lock()
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
        self._notify()

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

    def fetch_ahead(self, wanted: bool = True) -> None:
        """Fetch a segment if none is ready, though no caller waits; with *wanted* False: not any more."""
        self._fetches_ahead = wanted and self._ahead
        if self._fetches_ahead:
            self.wake()

    def wait(self, seconds: float, wanted: int) -> None:
        """Wait until a segment is ready, or an attempt failed; MAX_SLEEP_S or *seconds* at most.

        Args:
            wanted: how many numbers the caller needs at once.

        Raises StoreUnavailable in the thread itself, where a finalizer may ask for a number.
        """
        waiter = self._threads.new_waiter()
        try:
            self._begin_wait(waiter, wanted)
            if not self.ready:
                waiter.wait(min(seconds, MAX_SLEEP_S))
        finally:
            self._waiters.pop(waiter, None)

    async def wait_async(self, seconds: float, wanted: int) -> None:
        """Wait as wait(), without blocking the event loop; MAX_ASYNC_WAIT_S or *seconds* at most."""
        waiter = AsyncWaiter()
        try:
            self._begin_wait(waiter, wanted)
            if not self.ready:
                await waiter.wait(min(seconds, MAX_ASYNC_WAIT_S))
        finally:
            self._waiters.pop(waiter, None)

    def _begin_wait(self, waiter: Any, wanted: int) -> None:
        if self._threads.ident() == self._thread_ident:
            raise StoreUnavailable(
                "", "a finalizer asked for a number in the thread that fetches segments; make numbers elsewhere"
            )
        self._waiters[waiter] = wanted
        self.wake()

    def stop(self) -> None:
        """End the thread, soon. Idempotent; does not block."""
        self._stopped, self._run_token = True, None
        self._threads.wake()
        self._notify()

    def _run(self, token: object) -> None:
        with self._run_lock:
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
        busy = not self.ready and bool(self._fetches_ahead or self._waiters)
        if now_s >= self._report_at_s + (MOST_OVERDUE_S if busy else 0.0):
            self._report_at_s = now_s + self.fetcher.report()
            return 0.0
        if busy:
            if now_s < self._retry_at_s:
                return self._retry_at_s - now_s
            era = self._era
            try:
                segment = self.fetcher.fetch(max(list(self._waiters.values()), default=0))
            except Exception as error:  # noqa: BLE001 - raised in the callers that wait
                self.error = error
                self.failures += 1
                self._retry_s = min(max(RETRY_S, 2 * self._retry_s), MAX_RETRY_S)
                self._retry_at_s = self._clock.monotonic() + self._retry_s
                self._notify()
                return self._retry_s
            self._retry_s, self.error = 0.0, None
            if era == self._era:
                self.ready.extend(parts_of(segment))
                self._notify()
            return 0.0
        return self._report_at_s - now_s

    def _notify(self) -> None:
        for waiter in list(self._waiters):
            if self._waiters.pop(waiter, None) is not None:
                waiter.notify()


def parts_of(segment: Segment) -> list[Segment]:
    """Return the beginning of *segment*, and the rest if there is one: when that begins, the next one is fetched."""
    server, numbers = segment
    first = -(-len(numbers) // HEAD)
    return [Segment(server, part) for part in (numbers[:first], numbers[first:]) if part]


def copy_of(error: Exception) -> Exception:
    """Return a copy of *error* that can be raised in several threads; itself, if that is not possible."""
    try:
        copy = type(error)(*error.args)
    except Exception:  # noqa: BLE001 - an error of the application, of any kind
        return error
    copy.__cause__ = error.__cause__
    return copy
