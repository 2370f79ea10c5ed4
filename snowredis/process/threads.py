"""Call a function while a lock is held, and release the lock whatever a signal handler raises, at any moment.

Start a thread, with a bounded wait for it.

Run blocking functions for coroutines of asyncio, uvloop or trio, without blocking their event loop.
"""

from __future__ import annotations

import _thread
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
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


# a thread runs within a millisecond; on a busy machine the caller need not wait for it
_LONGEST_WAIT_S = 0.1


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread that calls *run*, and return when it runs. Blocks 0.1 s at most.

    threading.Thread.start() waits without a limit: a child that a signal handler forks during that wait has no such
    thread, and would wait forever.

    Raises:
        RuntimeError: the system has no more threads, or the interpreter is about to end.
    """
    waiting = _thread.allocate_lock()
    waiting.acquire()

    def begin() -> None:
        waiting.release()
        threading.current_thread().name = name
        run()

    _thread.start_new_thread(begin, ())
    waiting.acquire(timeout=_LONGEST_WAIT_S)


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call *function* in a daemon thread; return a future of its result or error. Blocks 0.1 s at most."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)

    start_thread(run, "snowredis-async")
    return future


async def in_thread(function: Callable[[], T]) -> T:
    """Call *function* in a thread and return its result; raises what it raises."""
    return await result_of(in_background(function))


async def result_of(future: Future[T]) -> T:
    """Wait for *future* and return its result, or raise its error. If this is cancelled, the future is not."""
    trio = _trio()
    if trio is not None:
        result: T = await trio.to_thread.run_sync(future.result, abandon_on_cancel=True)
        return result
    # not at the top: without coroutines it is not needed, and gevent has to be imported before it
    import asyncio

    return await asyncio.shield(asyncio.wrap_future(future))


async def sleep(seconds: float) -> None:
    """Sleep without blocking the event loop that runs this coroutine."""
    trio = _trio()
    if trio is not None:
        await trio.sleep(seconds)
        return
    import asyncio

    await asyncio.sleep(seconds)


def _trio() -> Any:
    """Return the module trio if it runs this coroutine, else None."""
    trio: Any = sys.modules.get("trio")
    # another thread may be in the middle of importing it
    lowlevel = getattr(trio, "lowlevel", None)
    return trio if lowlevel is not None and lowlevel.in_trio_task() else None
