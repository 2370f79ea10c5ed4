"""`gameday`: find out what a Redis loses when it fails, with a fleet that makes ids meanwhile.

The fleet is processes of fleet.py in a pool of its own, whose keys are deleted at the end. Numbered writes
show what is lost, and INFO which identities Redis has. The settings to use follow from both.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.fleet import Fleet
from snowredis.cli.options import Command, Parser, between, natural, seconds
from snowredis.cli.output import pairs, printable, write
from snowredis.core.layout import Layout
from snowredis.errors import SnowredisError
from snowredis.snowflake.protocol.pool_config import pool_keys

if TYPE_CHECKING:
    from snowredis.worker_pool import WorkerPool

# between two starts of processes while Redis fails
_START_EVERY_S = 3.0
# how long Redis may be away after that
_LIMIT_S = 900.0
_READY_LIMIT_S = 60.0
# a failure begins within this time after the person, or the command, made it
_BEGINS_S = 3.0
# a Redis that replies after this time was not seen to fail
_SEEN_AWAY_S = 0.5
# each process makes so many ids a second
_RATE, _LABEL = 1_000, "gameday"
# between two numbered writes
_WRITE_EVERY_S = 0.01
# the default for Sentinel and Cluster; the end of a failover cannot be seen from here
_LEAST_SLACK_S = 15
# for clocks of two servers that differ
_CLOCKS_S = 3


def pauses(fleet: Fleet, first: int) -> dict[str, Any]:
    """Return the longest pause of the *first* processes of *fleet*, and how long later ones took to make an id."""
    longest_s, starts_s, layout = 0.0, [], Layout()
    for number, process in enumerate(fleet.processes):
        ticks = [an_id >> layout.timestamp_shift for an_id in process.ids]
        if number < first:
            gaps = (after - before for before, after in itertools.pairwise(ticks))
            longest_s = max(longest_s, max(gaps, default=0) / 1000)
        elif ticks:
            starts_s.append(layout.ms_at(ticks[0]) / 1000 - process.started_s)
    return {
        "longest_pause_s": round(longest_s, 2),
        "slowest_start_s": round(max(starts_s, default=0.0), 2),
        "never_started": len(fleet.processes) - first - len(starts_s),
    }


class Observed(NamedTuple):
    """Fate of the acknowledged writes, and the identity that Redis showed.

    Attributes:
        lost_for_s: from the first lost write to the last.
        away_s: the longest time without an acknowledgement.
        identities: each pair of run id and replication id, once.
        replicas: the most that Redis reported.
    """

    acknowledged: int
    lost: int
    lost_for_s: float
    away_s: float
    identities: list[tuple[str, str]]
    replicas: int

    @property
    def failed(self) -> bool:
        """True if anything was seen that a failure does."""
        return self.lost > 0 or self.away_s > _SEEN_AWAY_S or len(self.identities) > 1


class Canary(threading.Thread):
    """Thread that writes numbers until stop().

    Attributes:
        key: what it writes.
    """

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(daemon=True)
        self.key = f"{pool_keys(pool.name)[0]}:canary"
        self._client, self._where, self._end = pool.client, pool.where, threading.Event()
        # each number that Redis acknowledged, and when, in seconds of the monotonic clock
        self._acknowledged: dict[int, float] = {}
        self._identities: list[tuple[str, str]] = []
        self._replicas = 0

    def run(self) -> None:
        """Write until stop()."""
        from snowredis.servers.runner import server_of, translated

        number = 0
        while not self._end.wait(_WRITE_EVERY_S):
            number += 1
            with contextlib.suppress(SnowredisError), translated(self._where):
                self._client.hset(self.key, str(number), 1)
                self._acknowledged[number] = time.monotonic()
                if number % 10 == 1:
                    info = server_of(self._client, self.key).info("everything")
                    self._replicas = max(self._replicas, int(info.get("connected_slaves", 0)))
                    self._identities.append((str(info.get("run_id", "")), str(info.get("master_replid", ""))))

    def replied_s(self) -> float:
        """Return the time of the last acknowledged write, in seconds of the monotonic clock; 0: none."""
        return next(reversed(self._acknowledged.values()), 0.0)

    def stop(self) -> None:
        """Write no more."""
        self._end.set()
        if self.is_alive():
            self.join()

    def seen(self) -> Observed:
        """Return what was seen. Call it after stop(). Raises StoreUnavailable if Redis is away."""
        from snowredis.servers.runner import translated

        with translated(self._where):
            there = {int(name) for name in self._client.hkeys(self.key)}
        times = list(self._acknowledged.values())
        lost = [moment for number, moment in self._acknowledged.items() if number not in there]
        away_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        lost_for_s = lost[-1] - lost[0] if lost else 0.0
        identities = list(dict.fromkeys(self._identities))
        return Observed(len(times), len(lost), lost_for_s, away_s, identities, self._replicas)


def advise(seen: Observed, *, noticed: bool, unidentified: str) -> tuple[dict[str, Any], list[str]]:
    """Return settings for connect(), and the reasons for them.

    Args:
        noticed: whether the pool has another incarnation.
        unidentified: why scripts cannot see the identity of Redis; empty if they can.
    """
    if unidentified:
        return {"durability": "none"}, [f"scripts cannot tell this Redis from another one: {unidentified}"]
    if seen.lost and not noticed:
        return {"durability": "none"}, [
            "acknowledged writes were lost, and Redis shows nothing by which scripts notice it"
        ]
    chosen: dict[str, Any] = {"durability": "detect"}
    reasons = ["no acknowledged write was lost in this trial, which does not prove that none ever is"]
    if seen.lost:
        reasons = ["acknowledged writes were lost, and the pool noticed it. With durability assured, ids would repeat"]
    if seen.replicas and len(seen.identities) > 1:
        chosen["failover_slack"] = max(_LEAST_SLACK_S, round(2 * seen.lost_for_s + 1)) + _CLOCKS_S
        reasons.append(f"a replica took over, and {seen.lost_for_s:.1f} s of writes to the old master were lost")
    if seen.replicas and seen.lost:
        chosen["min_replicas"] = "all"
        reasons.append("with min_replicas, a lease counts only when the replicas have it")
    return chosen, reasons


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("url", metavar="URL", help="of the Redis that will fail, as connect() takes it")
    text = "processes that make ids, 2 to 32 (default: 4)"
    parser.add_argument("--workers", type=between(2, 32, natural), default=4, metavar="N", help=text)
    text = "of their leases, 2 to 60 seconds (default: 5, or 27.5 with Sentinel or Cluster)"
    parser.add_argument("--ttl", type=between(2, 60, seconds), metavar="S", help=text)
    parser.add_argument("--do", metavar="COMMAND", help="a shell command that makes Redis fail, instead of a person")
    parser.add_argument("--json", metavar="FILE", help="also write the result to this file, for a reviewer")


def _run(args: argparse.Namespace) -> int:
    from snowredis.monitor.checks import missing_identity
    from snowredis.snowflake.protocol.open import open_pool
    from snowredis.worker_pool import WorkerPool

    name = f"gameday-{secrets.token_hex(4)}"
    with (
        interrupted_by_signals(),
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(WorkerPool(args.url, name)) as pool,
    ):
        unidentified = missing_identity(pool.client, "")
        durability = "none" if unidentified else "detect"
        slack_s = pool.server.failover_slack_ms / 1000
        ttl_s = args.ttl or 5 + 1.5 * slack_s
        canary = Canary(pool)
        fleet = Fleet(Path(directory), args.url, name, ttl_s, durability, "ignore", _RATE)
        try:
            server: Any = pool.server
            pool.create(open_pool(server, {"pool": name, "ttl": ttl_s, "durability": durability})[1])
            began = pool.info()
            canary.start()
            for _ in range(args.workers):
                fleet.start(_LABEL)
            _wait(lambda: all(each.count for each in fleet.processes), _READY_LIMIT_S, "the processes make no ids")
            print(f"{args.workers} processes make ids in the pool {name}.", flush=True)
            _while_failing(args.do, fleet, canary.replied_s, 1.5 * ttl_s + slack_s)
            canary.stop()
            seen, noticed = canary.seen(), pool.info().incarnation != began.incarnation
        finally:
            with uninterrupted():
                canary.stop()
                fleet.close()
                # no reservation matters of a pool that no process will use again
                pool.client.delete(*pool_keys(name), canary.key)
        if not seen.failed:
            raise CommandError(
                ExitCode.ERROR,
                f"{seen.acknowledged:,} writes were acknowledged without a pause, and Redis shows one identity: no "
                "failure was seen, so there is no verdict. Make Redis fail, and try again",
            )
        settings, reasons = advise(seen, noticed=noticed, unidentified=unidentified)
        checked = fleet.check()
        result: dict[str, Any] = {
            "server": pool.where,
            "writes": seen._asdict(),
            "noticed": noticed,
            "ids": {"ids": checked.ids, "repeated": checked.duplicates} | pauses(fleet, args.workers),
            "settings": settings,
            "reasons": reasons,
        }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    _show(result)
    return ExitCode.FOUND_ERRORS if result["ids"]["repeated"] else ExitCode.OK


def _while_failing(command: str | None, fleet: Fleet, replied_s: Callable[[], float], settle_s: float) -> None:
    """Let Redis fail, start processes meanwhile, and wait until *settle_s* after it replies again."""
    if command is None:
        print("Now fail over, restart, freeze or empty your Redis. Press Enter when it is done.", flush=True)
        lines: list[str] = []
        pressed = threading.Thread(target=lambda: lines.append(sys.stdin.readline()), daemon=True)
        pressed.start()
        _wait(lambda: not pressed.is_alive(), fleet=fleet)
        if not any(lines):
            text = "standard input has ended, so nobody made Redis fail: there is no verdict. Give a command with --do"
            raise CommandError(ExitCode.USAGE, text)
    else:
        with subprocess.Popen(command, shell=True) as failing:  # noqa: S602 - the user's own command
            _wait(lambda: failing.poll() is not None, fleet=fleet)
        if failing.returncode:
            text = f"the command ended with exit code {failing.returncode}, so there is no verdict"
            raise CommandError(ExitCode.ERROR, text)
    over_s = time.monotonic()
    _wait(lambda: replied_s() > over_s + _BEGINS_S, _LIMIT_S, "Redis did not reply", fleet)
    print(f"Redis replies. New processes have {settle_s:.0f} s to start.", flush=True)
    settled_s = time.monotonic() + settle_s
    _wait(lambda: time.monotonic() > settled_s, fleet=fleet)


def _wait(ready: Callable[[], bool], limit_s: float = math.inf, failure: str = "", fleet: Fleet | None = None) -> None:
    """Wait until *ready*, and start a process of *fleet* every _START_EVERY_S meanwhile."""
    began_s = started_s = time.monotonic()
    while not ready():
        now_s = time.monotonic()
        if now_s - began_s > limit_s:
            raise CommandError(ExitCode.REDIS_UNAVAILABLE, f"{failure} within {limit_s:.0f} s: the trial ended")
        if fleet is not None and now_s - started_s >= _START_EVERY_S:
            started_s = now_s
            fleet.start(_LABEL)
        time.sleep(0.1)


def _show(result: dict[str, Any]) -> None:
    writes, ids = result["writes"], result["ids"]
    changed = "shows another identity" if len(writes["identities"]) > 1 else "shows the same identity"
    chosen = ", ".join(f"{name}={value!r}" for name, value in result["settings"].items())
    lines = [
        ("acknowledged writes", f"{writes['acknowledged']:,}, of which {writes['lost']:,} were lost"),
        ("Redis", f"was away for {writes['away_s']:.1f} s, and {changed}"),
        ("living processes", f"longest pause {ids['longest_pause_s']:.2f} s"),
        ("new processes", f"slowest start {ids['slowest_start_s']:.1f} s, {ids['never_started']} did not start"),
        ("ids", f"{ids['ids']:,}, {ids['repeated']:,} repeated"),
        ("use", chosen),
        *(("", printable(reason, 300)) for reason in result["reasons"]),
    ]
    write(pairs(lines))


GAMEDAY = Command(
    "gameday",
    "find out what your Redis loses when it fails, and which settings it needs",
    """Makes a pool of its own, starts processes that make ids, and writes numbers, while you fail over, restart, freeze
or empty this Redis. Then it prints what Redis lost, how long processes paused, how many ids repeated, and the settings
to use. All its keys are deleted at the end.""",
    [
        ("snowredis gameday redis://test/0", "and then make it fail"),
        ("snowredis gameday redis://test/0 --do ./restart.sh", "by a command"),
    ],
    _add_arguments,
    _run,
)
