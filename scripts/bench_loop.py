#!/usr/bin/env python3
"""Measure for how long an event loop is blocked while coroutines get ids.

A ticker wakes up every millisecond and notes how late it was. It runs beside each kind of wait: the
claim, a new pool (the first claim waits), the end of a tick, a clock that went back, Redis unavailable; and
beside nothing at all, which is what this machine itself does to a loop. Starts a redis-server of its own.

examples:
  scripts/bench_loop.py                 asyncio, and uvloop if it is installed
  scripts/bench_loop.py --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import snowredis
from snowredis import WorkerPool, embedded
from snowredis.core.presets import resolve_layout
from snowredis.process.clock import StepClock
from snowredis.snowflake.protocol import PoolConfig

EVERY_S = 0.001


@contextlib.asynccontextmanager
async def measured(stalls_ms: list[float]) -> AsyncIterator[None]:
    """Append to *stalls_ms* for how long at most the event loop was blocked within this block."""
    late_s = 0.0

    async def tick() -> None:
        nonlocal late_s
        while True:
            began_s = time.perf_counter()
            await asyncio.sleep(EVERY_S)
            late_s = max(late_s, time.perf_counter() - began_s - EVERY_S)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    try:
        yield
        await asyncio.sleep(0.01)
    finally:
        ticking.cancel()
        stalls_ms.append(late_s * 1000)


async def nothing(_url: str, stalls_ms: list[float]) -> None:
    async with measured(stalls_ms):
        await asyncio.sleep(0.5)


async def claim(url: str, stalls_ms: list[float]) -> None:
    async with measured(stalls_ms):
        for _ in range(20):
            async with snowredis.aconnect(url, pool="known") as ids:
                await ids.anext_id()


async def new_pool(url: str, stalls_ms: list[float]) -> None:
    async with measured(stalls_ms), snowredis.aconnect(url, pool=f"new-{time.time_ns()}", ttl=0.5) as ids:
        await ids.anext_id()


async def end_of_tick(url: str, stalls_ms: list[float]) -> None:
    async with snowredis.aconnect(url, pool="narrow", layout="41/0/2/10/4") as ids, measured(stalls_ms):
        # 16 ids a ms: all of them wait for one tick after the other
        await asyncio.gather(*(repeat(ids.anext_id, 100) for _ in range(100)))


async def batches(url: str, stalls_ms: list[float]) -> None:
    async with (
        snowredis.aconnect(url, pool="wide", layout="38/0/0/3/22;tick_ms=8") as ids,
        measured(stalls_ms),
    ):
        kept = await ids.anext_ids(1_000_000)
    # to drop so many takes some ms, too
    del kept


async def clock_back(url: str, stalls_ms: list[float]) -> None:
    clock = StepClock()
    async with snowredis.aconnect(url, pool="waits", clock=clock, clock_policy="wait") as ids:
        await ids.anext_id()
        async with measured(stalls_ms):
            clock.step(-400)
            await asyncio.gather(*(repeat(ids.anext_id, 10) for _ in range(100)))


async def redis_away(_url: str, stalls_ms: list[float]) -> None:
    async with measured(stalls_ms):
        with contextlib.suppress(snowredis.StoreUnavailable):
            async with snowredis.aconnect("redis://127.0.0.1:1/0") as ids:
                await ids.anext_id()


async def repeat(make: Callable[[], Awaitable[Any]], times: int) -> None:
    for _ in range(times):
        await make()


WAITS = {
    "nothing (this machine)": nothing,
    "20 claims and releases": claim,
    "a new pool: its floor": new_pool,
    "100 coroutines at the ceiling": end_of_tick,
    "a batch of 1,000,000": batches,
    "a clock that went back by 400 ms": clock_back,
    "a Redis that is unavailable": redis_away,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each wait is measured (default: 5)")
    rounds = parser.parse_args().rounds
    # waits and an outage are what is measured here
    logging.getLogger("snowredis").setLevel(logging.CRITICAL)
    runners: dict[str, Callable[[Any], Any]] = {"asyncio": asyncio.run}
    with contextlib.suppress(ImportError):
        import uvloop

        runners["uvloop"] = uvloop.run
    stalls: dict[tuple[str, str], list[float]] = {(loop, name): [] for loop in runners for name in WAITS}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        server = embedded.start(directory)
        stack.callback(embedded.stop, directory)
        layouts: dict[str, str | None] = {
            "known": None,
            "waits": None,
            "narrow": "41/0/2/10/4",
            "wide": "38/0/0/3/22;tick_ms=8",
        }
        for pool, layout in layouts.items():
            WorkerPool(server.url, pool).create(PoolConfig(name=pool, layout=resolve_layout(layout)))
        for _ in range(rounds):
            for (loop, name), found in stalls.items():
                runners[loop](WAITS[name](server.url, found))
    print(f"longest stall of the loop, ms: median and worst of {rounds} rounds\n")
    print(f"{'while waiting for':34}" + "".join(f"{loop:>9} worst" for loop in runners))
    for name in WAITS:
        columns = (stalls[loop, name] for loop in runners)
        print(f"{name:34}" + "".join(f"{statistics.median(ms):9.2f} {max(ms):5.2f}" for ms in columns))


if __name__ == "__main__":
    main()
