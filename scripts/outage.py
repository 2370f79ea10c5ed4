#!/usr/bin/env python3
"""Kill a Redis under a process that makes ids, start it again, and print what that process and new ones see.

    scripts/outage.py                          down for 5 s, empty afterwards; takes 65 s
    scripts/outage.py --down 60 --keep-data    down for 60 s, with an append-only file; takes two minutes
    scripts/outage.py --hang --down 40         stopped (SIGSTOP) and continued, instead of killed
    scripts/outage.py --sentinel 1000          a failover; milliseconds until the Sentinels notice
    scripts/outage.py --recycle --ttl 3        gunicorn, which replaces a worker after some requests; counts ids

The figures of docs/how-to/redis-unavailable.md come from here. Times are seconds since the kill. Needs redis-server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import snowredis
from snowredis.snowflake.protocol.messages import CreateRequest, Seen
from snowredis.snowflake.protocol.open import open_store
from tests.support.ha import Sentinels, running
from tests.support.servers import redis_server

POOL = "orders"
# the living worker renews at least once before the kill, and not right before it, with the default ttl
BEFORE_S = 13.7
# a worker that starts while Redis is away, and one that starts when it is back
LATE_S = 1.0


def watch(url: str, ttl: float) -> None:
    """Make ids all the time; print what changes, as lines of "time since 1970, a tab, what"."""

    class Print(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"{record.levelname}: {record.getMessage()}")

    def say(text: str) -> None:
        print(f"{time.time():.3f}\t{text}", flush=True)

    logger = logging.getLogger("snowredis")
    logger.addHandler(Print())
    logger.setLevel(logging.INFO)
    ids = snowredis.connect(url, pool=POOL, ttl=ttl)
    state = ""
    while True:
        began_s = time.monotonic()
        try:
            text = f"ids of worker id {ids.decode(ids.next_id()).worker}"
            now = text
        except snowredis.SnowredisError as error:
            now, text = type(error).__name__, f"{type(error).__name__}: {error}"
        if now != state:
            took_s = time.monotonic() - began_s
            say(text + (f" (the call took {took_s:.1f} s)" if took_s > 1 else ""))
            state = now
        time.sleep(0.02)


class Watchers:
    """Processes that run watch(), and the lines that they printed."""

    def __init__(self, url: str, ttl: float) -> None:
        self._arguments = [sys.executable, __file__, "--watch", url, "--ttl", str(ttl)]
        self._lines: list[tuple[float, str, str]] = []
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, name: str) -> None:
        process = subprocess.Popen(self._arguments, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def say(self, text: str) -> None:
        self._lines.append((time.time(), "Redis", text))

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(10)

    def show(self, zero_s: float) -> None:
        for at_s, name, text in sorted(self._lines):
            print(f"{at_s - zero_s:7.1f} s  {name:7} {text}")

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            at, _, text = line.rstrip("\n").partition("\t")
            self._lines.append((float(at), name, text))


@contextlib.contextmanager
def one_server(
    directory: Path, args: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Run a redis-server; yield its URL, a function that takes it away, and one that brings it back."""
    options = ["--appendonly", "yes"] if args.keep_data else []
    with redis_server(directory, *options) as server:
        if args.hang:
            yield server.url, lambda: server.kill(signal.SIGSTOP), lambda: server.kill(signal.SIGCONT)
        else:
            yield server.url, server.kill, server.start


@contextlib.contextmanager
def sentinels(
    directory: Path, args: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Run a master, two replicas and three Sentinels; the new master is there without anybody's help."""
    group = Sentinels(directory)
    for node in group.sentinels:
        file = node.directory / "sentinel.conf"
        file.write_text(
            file.read_text().replace("milliseconds mymaster 1000", f"milliseconds mymaster {args.sentinel}")
        )
    with running([*group.nodes, *group.sentinels]):
        group.wait_for_replicas()
        group.wait_for_sentinels()
        yield group.url, group.master.kill, lambda: None


def play(directory: Path, args: argparse.Namespace) -> None:
    """Play one outage and print the time line."""
    with (sentinels if args.sentinel else one_server)(directory, args) as (url, take_away, bring_back):
        settings = {"pool": POOL, "ttl": args.ttl}
        with contextlib.closing(open_store(url, settings)) as store:
            store.ask(CreateRequest(Seen(), time.time_ns() // 1_000_000))
            floor_s = store.config.floor_ms / 1000
        watchers = Watchers(url, args.ttl)
        try:
            watchers.start("living")
            time.sleep(BEFORE_S)
            zero_s = time.time()
            watchers.say("is taken away")
            take_away()
            time.sleep(LATE_S)
            watchers.start("new")
            time.sleep(max(0.0, zero_s + args.down - time.time()))
            bring_back()
            watchers.say("is back" if not args.sentinel else "is being replaced")
            time.sleep(LATE_S)
            watchers.start("newer")
            time.sleep(floor_s + 10 * LATE_S)
        finally:
            watchers.stop()
        watchers.show(zero_s)


def recycle(directory: Path, args: argparse.Namespace) -> None:
    """Let gunicorn replace workers while Redis is away; print how many there were, and what requests got."""
    # loaded here: only this needs gunicorn
    from tests.integrations.hosts import POOL as NAME
    from tests.integrations.hosts import gunicorn
    from tests.support.pools import new_pool

    made: list[int] = []
    pids, failed, longest_s = {0}, 0, 0.0
    with redis_server(directory) as server:
        new_pool(server.url, NAME, ttl=args.ttl, outage_reserve=24 * 3600)
        options = ("--workers=4", "--max-requests=50")
        with gunicorn(server, directory, *options, ttl_s=args.ttl, outage_reserve_s=24 * 3600) as running:
            running.wait_until_ready(4)
            server.kill()
            end_s = time.monotonic() + args.down
            while (began_s := time.monotonic()) < end_s:
                status, body = running.request("/ids/20")
                longest_s = max(longest_s, time.monotonic() - began_s)
                found: dict[str, Any] = json.loads(body) if status == 200 else {"ids": [], "pid": 0}
                failed += status != 200
                made += found["ids"]
                pids.add(found["pid"])
    print(
        f"{args.down:g} s without Redis: {len(pids) - 1} workers, {len(made) // 20 + failed} requests, "
        f"{failed} failed, the longest took {longest_s:.2f} s; {len(made)} ids, {len(made) - len(set(made))} repeated"
    )


def main() -> None:
    """Parse the arguments; play an outage, or be a process that watches one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--down", type=float, default=5.0, metavar="S", help="how long Redis is away (default: 5)")
    parser.add_argument("--keep-data", action="store_true", help="Redis has its data when it is back")
    parser.add_argument("--hang", action="store_true", help="stop and continue Redis, instead of killing it")
    parser.add_argument("--sentinel", type=int, default=0, metavar="MS", help="a failover: down-after-milliseconds")
    parser.add_argument("--ttl", type=float, default=30.0, metavar="S", help="of the pool (default: 30)")
    parser.add_argument("--recycle", action="store_true", help="gunicorn with --max-requests, while Redis is away")
    parser.add_argument("--watch", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch:
        watch(args.watch, args.ttl)
        return
    with tempfile.TemporaryDirectory(prefix="snowredis-") as directory:
        (recycle if args.recycle else play)(Path(directory), args)


if __name__ == "__main__":
    main()
