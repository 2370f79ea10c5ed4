"""Buffer: the segments that a generator has at hand, and the thread that fetches the next one before it is needed.

Two buffers: a segment is used in two parts, and the next one is fetched when the second part begins. Only the thread
talks to Redis, so that no signal handler, finalizer or forked child meets half a conversation.
"""

from __future__ import annotations

import _thread
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.process.clock import MAX_SLEEP_S, Clock
from snowredis.process.threads import start_thread

# the next segment is fetched when this part of one is used up: a process that needs few numbers fetches one only
HEAD = 10
# between two attempts while Redis does not hand out segments: the first, and the longest
RETRY_S, MAX_RETRY_S = 0.05, 1.0


class Buffer:
    """The segments at hand. Void as soon as its generator has another one: after a fork, suspend() and close().

    Args:
        fetch: fetches a segment for callers that need so many numbers at once; called in the thread.
        clock: the monotonic one is read.

    Attributes:
        is_void: nothing more is fetched.
        ready: the parts of segments that nobody uses yet, the oldest first.
        failures: how many attempts failed; error: why the newest one did, None if it did not.
    """

    def __init__(self, fetch: Callable[[int], range], clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self.is_void = False
        self.ready: deque[Sequence[int]] = deque()
        self.failures = 0
        self.error: Exception | None = None
        self._is_ahead = False
        # lock that ends the wait of a caller when it is released -> how many numbers the caller needs at once. Unlike
        # threading.Event, safe in a signal handler that interrupts another wait
        self._waiters: dict[Any, int] = {}
        # held while a segment is fetched; no step lies between looking and starting a thread that a signal handler,
        # which needs a segment, could divide: a second thread ends at once
        self._fetching = _thread.allocate_lock()
        self._thread_ident = 0
        self._retry_s = self._retry_at_s = 0.0

    def fetch_ahead(self) -> None:
        """Fetch a segment if none is ready, though no caller waits."""
        self._is_ahead = True
        # no more threads, or the interpreter is about to end: the caller has numbers
        with contextlib.suppress(RuntimeError):
            self._start()

    def wait(self, seconds: float, wanted: int) -> None:
        """Wait until a segment is ready, or an attempt failed; MAX_SLEEP_S or *seconds* at most.

        Args:
            wanted: how many numbers the caller needs at once.

        Raises StoreUnavailable in the thread itself, where a finalizer may ask for a number.
        """
        if _thread.get_ident() == self._thread_ident:
            raise StoreUnavailable(
                "", "a finalizer asked for a number in the thread that fetches segments; make numbers elsewhere"
            )
        waiter = _thread.allocate_lock()
        waiter.acquire()
        try:
            self._waiters[waiter] = wanted
            self._start()
            if not self.ready and not self.is_void:
                waiter.acquire(timeout=min(seconds, MAX_SLEEP_S))
        finally:
            self._waiters.pop(waiter, None)

    def end_waits(self) -> None:
        """Let all callers that wait look again."""
        for waiter in list(self._waiters):
            if self._waiters.pop(waiter, None) is not None:
                waiter.release()

    def _start(self) -> None:
        if not self._fetching.locked():
            start_thread(self._run, "snowredis-segments")

    def _run(self) -> None:
        """Fetch as long as a segment is needed. Runs in the thread."""
        while self._is_needed and self._fetching.acquire(False):
            self._thread_ident = _thread.get_ident()
            try:
                self._fetch_one()
            finally:
                self._thread_ident = 0
                self._fetching.release()
                self.end_waits()

    @property
    def _is_needed(self) -> bool:
        return not self.is_void and not self.ready and bool(self._is_ahead or self._waiters)

    def _fetch_one(self) -> None:
        pause_s = self._retry_at_s - self._clock.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        if not self._is_needed:
            return
        try:
            numbers = self._fetch(max(list(self._waiters.values()), default=0))
        except Exception as error:  # noqa: BLE001 - raised in the callers that wait
            self.error = error
            self.failures += 1
            self._retry_s = min(max(RETRY_S, 2 * self._retry_s), MAX_RETRY_S)
            self._retry_at_s = self._clock.monotonic() + self._retry_s
            return
        self._retry_s, self._retry_at_s, self._is_ahead, self.error = 0.0, 0.0, False, None
        first = -(-len(numbers) // HEAD)
        self.ready.extend(part for part in (numbers[:first], numbers[first:]) if part)
