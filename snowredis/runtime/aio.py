"""Run blocking functions for coroutines of asyncio, uvloop or trio, without blocking their event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from snowredis.runtime.thread import start_thread

T = TypeVar("T")


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
