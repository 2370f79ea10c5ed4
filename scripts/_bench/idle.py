"""CPU time that an idle process spends for each of its heartbeats, beside that of a thread that pings as often.

Run as ``python -m scripts._bench.idle KIND URL SECONDS``, it is one such process, and prints that time in us.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis

import snowredis
from scripts._bench.server import Server
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.upkeep.pace import BEAT_SHARES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = PoolConfig(name="idle", ttl_ms=3_000)


def mean_beat_s(config: PoolConfig) -> float:
    """Return the mean time between two heartbeats of a worker, in s."""
    return config.heartbeat_ms / 1000 * sum(BEAT_SHARES) / 2


def generator(url: str) -> Callable[[], int]:
    """Start the heartbeat of a generator; return what counts its beats."""
    ids = snowredis.connect(url, pool=CONFIG.name, ttl=CONFIG.ttl_ms / 1000)
    ids.next_id()
    return lambda: ids.counts.renewals


def ping(url: str) -> Callable[[], int]:
    """Start a thread that pings with redis-py; return what counts its pings."""
    client, sent = redis.Redis.from_url(url), [0]

    def beat() -> None:
        while client.ping():
            sent[0] += 1
            time.sleep(mean_beat_s(CONFIG))

    threading.Thread(target=beat, daemon=True).start()
    return lambda: sent[0]


KINDS = {"generator": generator, "ping": ping}


def measure(server: Server, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Return the CPU time of a beat in each round, in us, by kind. The processes of a round run at once."""
    snowredis.WorkerPool(server.url, CONFIG.name).create(CONFIG)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        commands = [[sys.executable, "-m", "scripts._bench.idle", kind, server.url, str(seconds)] for kind in KINDS]
        processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for command in commands]
        for kind, process in zip(KINDS, processes, strict=True):
            found[kind].append(float(process.communicate()[0]))
    return found


def main(kind: str, url: str, seconds: str) -> None:
    count = KINDS[kind](url)
    # what a first heartbeat costs more
    time.sleep(CONFIG.ttl_ms / 2000)
    cpu_s, beats = time.process_time(), count()
    time.sleep(float(seconds))
    print((time.process_time() - cpu_s) / (count() - beats) * 1e6)


if __name__ == "__main__":
    main(*sys.argv[1:])
