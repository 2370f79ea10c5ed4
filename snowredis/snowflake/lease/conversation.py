"""One conversation with the store at a time, also where signal handlers, finalizers and threads meet."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from snowredis.errors import StoreUnavailable
from snowredis.process.exit import EXIT

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
