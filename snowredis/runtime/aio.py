"""Ids for coroutines: nothing here holds up an event loop, of asyncio, uvloop or trio.

What takes but a moment (a new tick) is done on the loop, if no other thread is in the middle of it.
Short waits are the loop's own. What talks to Redis happens in a thread, once for all coroutines that
need it, and not in the loop's executor, which the application may have filled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Generator as Steps
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from snowredis.core.lanes import Wait
from snowredis.runtime.batches import Batches, check_count
from snowredis.runtime.thread import start_thread

if TYPE_CHECKING:
    from snowredis.runtime.generator import Generator
    from snowredis.runtime.lease_manager import Lease

T = TypeVar("T")

# a list of so many ids takes well under a millisecond
CHUNK = 10_000
# in one wait; close() is noticed between two
MAX_SLEEP_S = 0.1


class AsyncIds(Batches):
    """The methods of a generator that are awaited."""

    __slots__ = ("_readying",)

    _readying: Future[None] | None

    async def anext_id(self) -> int:
        """Make one id. As next_id(), but waits without holding up the event loop."""
        return self._id_now() or await self._anext_slow()

    async def anext_ids(self, count: int) -> list[int]:
        """Make *count* ids at once. As next_ids(), but waits without holding up the event loop.

        Other coroutines get their turn after each tick, and after 10,000 ids at the latest.
        """
        check_count(count)
        while True:
            generation = self._guard.generation
            batch: list[int] = []
            while len(batch) < count:
                part = self._take_now(min(count - len(batch), CHUNK)) or [await self._anext_slow()]
                if batch and part[0] < batch[-1]:
                    # the clock went back, or another coroutine's turn came in a namespace that is behind
                    batch.clear()
                batch += part
                if len(part) == CHUNK:
                    await sleep(0)
            if self._guard.generation == generation and self._guard.alive:
                return batch

    async def aclaim(self) -> Lease:
        """Claim a worker id now. As claim(), but waits without holding up the event loop."""
        return await in_thread(self.claim)

    async def aclose(self) -> None:
        """Give the worker id back. As close(), but waits without holding up the event loop."""
        await in_thread(self.close)

    async def __aenter__(self) -> Self:
        await self.aclaim()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _anext_slow(self) -> int:
        while True:
            an_id, decision = self._step()
            if an_id:
                return an_id
            if not isinstance(decision, Wait):
                await self._ready()
            elif self._clock.background:
                await sleep(min(decision.ms / 1000, MAX_SLEEP_S))
            else:
                # a clock of tests, which sleeping moves
                self._clock.sleep(decision.ms / 1000)
                await sleep(0)

    def _step(self) -> tuple[int, Any]:
        """An id of the current tick or of a new one; or 0 and what has to be done first. Never waits for a lock."""
        # the very one that was taken: a child that is forked in between has another
        lock = self._lock
        if not lock.acquire(blocking=False):
            return 0, None
        try:
            self._guard.check()
            generation = self._guard.generation
            if self._ended:
                return 0, None
            an_id, decision = self._advance(only_claim=False)
            if isinstance(decision, Wait):
                self._note_wait(decision)
        finally:
            lock.release()
        # last: in a child that a signal handler forked just now, this id is its parent's
        if self._guard.generation != generation or not self._guard.alive:
            return 0, None
        return an_id, decision

    async def _ready(self) -> None:
        """Until ids can be made; one thread for all who wait. Raises what next_id() raises."""
        readying = self._readying
        if readying is None or readying.done():
            readying = self._readying = in_background(self.make_ready)
        await result_of(readying)

    @property
    def _ended(self) -> bool:
        """Whether there is no id to be had without a word to the caller: closed, or suspended."""
        raise NotImplementedError

    def _note_wait(self, wait: Wait) -> None:
        """Count what is about to be waited for."""
        raise NotImplementedError

    def make_ready(self) -> None:
        """Claim, renew, or wait for the pool, so that the next id needs no Redis."""
        raise NotImplementedError

    def claim(self) -> Lease:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Connecting:
    """What aconnect() answers: ``async with`` it, or ``await`` it and call aclose() at the end."""

    def __init__(self, connect: Callable[[], Generator]) -> None:
        self._connect = connect
        self._ids: Generator | None = None

    def __await__(self) -> Steps[Any, None, Generator]:
        return self._open().__await__()

    async def __aenter__(self) -> Generator:
        self._ids = await self._open()
        return self._ids

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ids is not None:
            await self._ids.aclose()

    async def _open(self) -> Generator:
        ids = await in_thread(self._connect)
        try:
            await ids.aclaim()
        except BaseException:
            # cancelled, or refused: in either case nobody has it
            in_background(ids.close)
            raise
        return ids


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call *function* in a thread that keeps neither the loop nor the interpreter from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)

    start_thread(run, "snowredis-async")
    return future


async def in_thread(function: Callable[[], T]) -> T:
    return await result_of(in_background(function))


async def result_of(future: Future[T]) -> T:
    """Whoever is cancelled here leaves *future* to the others."""
    trio = _trio()
    if trio is not None:
        result: T = await trio.to_thread.run_sync(future.result, abandon_on_cancel=True)
        return result
    # loaded by whoever runs this; without coroutines it is not needed, and gevent wants to come before it
    import asyncio

    return await asyncio.shield(asyncio.wrap_future(future))


async def sleep(seconds: float) -> None:
    trio = _trio()
    if trio is not None:
        await trio.sleep(seconds)
        return
    import asyncio

    await asyncio.sleep(seconds)


def _trio() -> Any:
    """trio, if it is what runs this coroutine."""
    trio: Any = sys.modules.get("trio")
    # another thread may be in the middle of importing it
    lowlevel = getattr(trio, "lowlevel", None)
    return trio if lowlevel is not None and lowlevel.in_trio_task() else None
