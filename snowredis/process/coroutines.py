"""Run blocking functions for coroutines of asyncio, uvloop or trio, without blocking their event loop.

Not in the executor of the loop, which the application may have filled.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from collections.abc import Generator as Steps
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar, cast

from snowredis.process.fork import GUARD
from snowredis.process.log import log
from snowredis.process.threads import may_start_threads, start_thread

T = TypeVar("T")


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call *function* in a daemon thread; return a future of its result or error. Blocks 0.1 s at most.

    At the exit of the interpreter, when no thread is started any more, it is called here.
    """
    future: Future[T] = Future()
    _start(lambda: _finish(future, function))
    return future


def _start(run: Callable[[], object]) -> None:
    """Call *run* in a daemon thread; at the exit of the interpreter, call it here."""
    if may_start_threads():
        start_thread(run, "snowredis-async")
    else:
        run()


async def in_thread(function: Callable[[], T]) -> T:
    """Call *function* in a thread and return its result; raises what it raises."""
    return await result_of(in_background(function))


class Connecting(Generic[T]):
    """Result of aconnect(): ``async with`` it, or ``await`` it and call aclose() at the end."""

    def __init__(self, connect: Callable[[], T]) -> None:
        self._connect = connect
        self._ids: Any = None

    def __await__(self) -> Steps[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        if self._ids is not None:
            await self._ids.aclose()

    async def _open(self) -> T:
        ids: Any = await in_thread(self._connect)
        # this claims, or closes
        self._ids = opened = await ids.__aenter__()
        return cast(T, opened)


class OneThread:
    """Calls the blocking functions of many coroutines one after the other, in one thread for all of them.

    For functions that would wait for each other in any case, such as those of one generator: 2,000 coroutines that wait
    for it are one thread, not 2,000. The thread starts when there is something to do and ends when there is nothing.
    In a forked child, calls of the parent's coroutines are forgotten.
    """

    __slots__ = ("_generation", "_running", "_waiting")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # held by the thread; no flag of callers, which the handler of a signal may leave set without a thread
        self._running = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._generation = GUARD.generation

    async def call(self, function: Callable[[], T]) -> T:
        """Call *function* and return its result; raises what it raises. Not called if this is canceled before."""
        if self._generation != GUARD.generation:
            self._begin()
        future: Future[T] = Future()
        self._waiting.append((future, function))
        if not self._running.locked():
            _start(self._run)
        return await result_of(future, cancels=True)

    def _run(self) -> None:
        # a second thread ends at once; what was added while the first one released the lock is seen by it
        while self._waiting and self._running.acquire(False):
            try:
                while self._waiting:
                    future, function = self._waiting.popleft()
                    if future.set_running_or_notify_cancel():
                        _finish(future, function)
            finally:
                self._running.release()


def _finish(future: Future[T], function: Callable[[], T]) -> None:
    try:
        give = partial(future.set_result, function())
    except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
        give = partial(future.set_exception, error)
    try:
        give()
    except Exception:
        # concurrent.futures logs what a callback raises, such as a loop that is closed; and a handler may raise there
        log.exception("a coroutine did not get its result")


async def result_of(future: Future[T], *, cancels: bool = False) -> T:
    """Wait for *future* and return its result, or raise its error.

    Args:
        cancels: whether the future is canceled if this is; a function that runs already goes on.
    """
    trio = _trio()
    if trio is not None:
        return await _result_in_trio(trio, future, cancels)
    # imported here: without coroutines it is not needed, and gevent has to be imported before it
    import asyncio

    wrapped = asyncio.wrap_future(future)
    return await (wrapped if cancels else asyncio.shield(wrapped))


async def _result_in_trio(trio: Any, future: Future[T], cancels: bool) -> T:
    token, is_done = trio.lowlevel.current_trio_token(), trio.Event()

    def wake(_: Future[T]) -> None:
        try:
            token.run_sync_soon(is_done.set)
        except trio.RunFinishedError:
            # nobody waits any more
            return

    future.add_done_callback(wake)
    try:
        await is_done.wait()
    except BaseException:
        if cancels:
            future.cancel()
        raise
    return future.result()


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
