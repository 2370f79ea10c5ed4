#!/usr/bin/env python3
"""Measure segment numbers: ns a number beside itertools.count, waits of callers on a slow Redis, and numbers in bulk.

    scripts/segments_bench.py                    # 10 million numbers against a Redis with 5 ms added latency
    scripts/segments_bench.py --numbers 1000000 --latency-ms 20

Starts a redis-server of its own. Ratios are medians of rounds in which both take turns, so that they hold on a busy
machine; times are the best of the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.numbers import SegmentGenerator
from snowredis.numbers.administration import create_tag
from snowredis.numbers.opening import open_generator
from tests.support.servers import RedisServer

ROUNDS, CALLS = 41, 20_000
# what CosId's README says of its segment chain, numbers a second
COSID = 127_439_148


def ns_a_call(function: Callable[[], object]) -> float:
    """Call *function* CALLS times; return the ns a call, with the loop around it."""
    started_ns = time.perf_counter_ns()
    for _ in itertools.repeat(None, CALLS):
        function()
    return (time.perf_counter_ns() - started_ns) / CALLS


def hot(ids: SegmentGenerator) -> None:
    """Print what a number costs beside next() of itertools.count."""
    counter = itertools.count().__next__
    count = itertools.count()
    pairs = [(ns_a_call(ids.next_id), ns_a_call(lambda: next(count)), ns_a_call(counter)) for _ in range(ROUNDS)]
    ours, in_lambda, bound = (min(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(mine / other for mine, _, other in pairs)
    print(f"next_id(): {ours:.1f} ns; next() of itertools.count: {bound:.1f} ns (in a lambda {in_lambda:.1f})")
    print(f"  ratio {ratio:.2f}, with the check that the process was not forked")


def waits(url: str, slow: str, numbers: int, latency_ms: float, step: int, max_step: int) -> None:
    """Make *numbers* one at a time through a proxy that delays replies, and print who waited."""
    create_tag(url, "waits")
    with open_generator(slow, tag="waits", step=step, max_step=max_step) as ids:
        ids.next_id()
        first = ids.counts.waits
        next_id = ids.next_id
        started_ns = time.perf_counter_ns()
        for _ in itertools.repeat(None, numbers):
            next_id()
        passed_s = (time.perf_counter_ns() - started_ns) / 1e9
        counts = ids.counts
        print(
            f"{numbers:,} numbers, replies {latency_ms:g} ms late, step {step:,} to {max_step:,}: "
            f"{counts.waits - first} waits after the first of {counts.segments} segments; "
            f"{passed_s / numbers * 1e9:.0f} ns a number"
        )


def bulk(url: str, slow: str, size: int) -> None:
    """Print how many numbers a second fill() and next_ids() make."""
    create_tag(url, "bulk")
    with open_generator(slow, tag="bulk") as ids:
        ids.next_id()
        buffer = array("q", bytes(8 * size))
        rates = []
        for _ in range(7):
            started_s = time.perf_counter()
            ids.fill(buffer)
            rates.append(size / (time.perf_counter() - started_s))
        lists = []
        for _ in range(5):
            started_s = time.perf_counter()
            ids.next_ids(1_000_000)
            lists.append(1e6 / (time.perf_counter() - started_s))
        print(
            f"fill() of {size:,}: median {statistics.median(rates) / 1e6:,.0f} million a second, worst "
            f"{min(rates) / 1e6:,.0f}, with each round trip to Redis; CosId publishes {COSID / 1e6:.0f}. "
            f"next_ids(): {statistics.median(lists) / 1e6:.0f} million a second"
        )


def main() -> int:
    """Parse the arguments and measure."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=10_000_000, help="one at a time (default: 10,000,000)")
    parser.add_argument("--latency-ms", type=float, default=5, help="added to each reply (default: 5)")
    parser.add_argument("--step", type=int, default=2_000_000, help="of the first segment (default: 2,000,000)")
    parser.add_argument("--max-step", type=int, default=20_000_000, help="of a segment (default: 20,000,000)")
    parser.add_argument("--size", type=int, default=10_000_000, help="of a buffer (default: 10,000,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sb") as directory:
        server = RedisServer(Path(directory))
        server.start()
        proxy = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.numbers.programs.slow_redis",
                str(server.socket),
                str(options.latency_ms),
            ],
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert proxy.stdout is not None
            slow = f"redis://127.0.0.1:{proxy.stdout.readline().strip()}/0"
            create_tag(server.url, "hot")
            with open_generator(server.url, tag="hot", step=3 * ROUNDS * CALLS, max_step=3 * ROUNDS * CALLS) as ids:
                ids.next_id()
                hot(ids)
            waits(server.url, slow, options.numbers, options.latency_ms, options.step, options.max_step)
            bulk(server.url, slow, options.size)
        finally:
            proxy.communicate(timeout=10)
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
