"""Call a function while a lock is held, and release the lock whatever a signal handler raises, at any moment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class NotAcquired(Exception):
    """Another thread held the lock for too long; the function was not called."""


def locked(lock: Any, function: Callable[[], T], timeout_s: float = -1) -> T:
    """Call *function* while *lock* is held, and return its result.

    Python may call a signal handler, which may raise (Ctrl-C, a time limit for a job), after every call and at the
    begin of every function. A lock would stay held if that happened between acquire() and ``try``, or at the begin of
    an __exit__() that is written in Python; and, in Python 3.14, between the __enter__() of a ``with`` statement and
    its block.

    Args:
        timeout_s: how long to wait for the lock; 0: not at all; negative: without a limit.

    Raises:
        NotAcquired: another thread held the lock for so long.
    """
    acquired = False
    try:
        # no signal handler runs between the acquire() in map() and the assignment: this is no call, but an unpacking
        (acquired,) = map(lock.acquire, (True,), (timeout_s,))
        if not acquired:
            raise NotAcquired
        return function()
    finally:
        if acquired:
            lock.release()


def with_lock(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let a method hold its object's ``_lock`` while it runs, as locked() does."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        return locked(self._lock, functools.partial(method, self, *args, **named))

    return call
