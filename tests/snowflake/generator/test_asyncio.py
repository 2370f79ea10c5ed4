"""Ids for coroutines, which do not block the event loop."""

import asyncio
import itertools
import sys
import types
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import snowredis
from snowredis.errors import GeneratorClosed, PoolExhausted
from snowredis.testing import memory_pool
from tests.support.servers import RedisServer

Main = Callable[[], Coroutine[Any, Any, None]]


def run_asyncio(main: Main) -> None:
    asyncio.run(main())


def run_uvloop(main: Main) -> None:
    # free-threaded Pythons may have none
    pytest.importorskip("uvloop").run(main())


def run_trio(main: Main) -> None:
    import trio

    trio.run(main)


@pytest.fixture(params=[run_asyncio, run_uvloop, run_trio])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    found: Callable[[Main], None] = request.param
    return found


def test_a_batch_is_strictly_increasing_over_many_ticks(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with snowredis.aconnect(memory_pool(), layout="41/0/2/10/5") as ids:
            batch = await ids.anext_ids(2_000)
            assert len(batch) == 2_000
            assert all(a < b for a, b in itertools.pairwise(batch))
        with pytest.raises(GeneratorClosed):
            await ids.anext_id()

    run(main)


def test_the_loop_turns_while_a_pool_makes_newcomers_wait(server: RedisServer) -> None:
    async def main() -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.005)

        turning = asyncio.create_task(turn())
        # nobody said that this pool is new: it waits for a floor of 0.35 s
        async with snowredis.aconnect(server.url, pool="unheard-of", ttl=0.3) as ids:
            assert turns > 1
            assert await ids.anext_id() > 0
        turning.cancel()

    asyncio.run(main())


def test_an_error_reaches_every_coroutine_that_waits() -> None:
    pool = memory_pool()

    async def main() -> None:
        async with snowredis.aconnect(pool, layout="41/0/2/0/10"):
            late = snowredis.connect(pool, layout="41/0/2/0/10", claim_timeout=0)
            outcomes = await asyncio.gather(*(late.anext_id() for _ in range(5)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [PoolExhausted] * 5
            with pytest.raises(PoolExhausted):
                await snowredis.aconnect(pool, layout="41/0/2/0/10", claim_timeout=0)

    asyncio.run(main())


def test_whoever_is_cancelled_leaves_the_claim_to_the_others(server: RedisServer) -> None:
    async def main() -> None:
        ids = snowredis.connect(server.url, pool="cancelled", ttl=0.3)
        first = asyncio.create_task(ids.anext_id())
        second = asyncio.create_task(ids.anext_id())
        await asyncio.sleep(0.01)
        first.cancel()
        assert await second > 0
        with pytest.raises(asyncio.CancelledError):
            await first
        await ids.aclose()

    asyncio.run(main())


def test_a_claim_that_is_cancelled_holds_nothing(server: RedisServer) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(aconnected(), 0.5)

    async def aconnected() -> None:
        # whose floor takes longer
        await snowredis.aconnect(server.url, pool="given-up", ttl=3.0)

    asyncio.run(main())
    assert snowredis.WorkerPool(server.url, "given-up").workers() == []


def test_a_thread_that_is_importing_trio_does_not_disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio", types.ModuleType("trio"))

    async def main() -> None:
        async with snowredis.aconnect(memory_pool()) as ids:
            assert await ids.anext_id() > 0

    asyncio.run(main())


def test_async_for_makes_one_id_after_the_other() -> None:
    async def make() -> list[int]:
        made: list[int] = []
        async with snowredis.connect(memory_pool()) as ids:
            async for an_id in ids:
                made.append(an_id)
                if len(made) == 3:
                    return made
        raise AssertionError

    made = asyncio.run(make())
    assert made == sorted(set(made))
