"""`gameday`: find out what a Redis loses when it fails, with a fleet that makes ids meanwhile.

The fleet is processes of fleet.py in a pool of its own, whose keys are deleted at the end. Numbered writes
show what is lost, and INFO which identities Redis has. The settings to use follow from both.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.fleet import Fleet, wait_until
from snowredis.cli.options import Command, Parser, number
from snowredis.cli.output import show
from snowredis.core.as_json import in_json
from snowredis.core.layout import Layout
from snowredis.errors import SnowredisError
from snowredis.snowflake.protocol.pool_config import pool_keys

if TYPE_CHECKING:
    from snowredis.worker_pool import WorkerPool

# between two starts of processes while Redis fails
_START_EVERY_S = 3.0
# processes in all, while a person takes a long time
_MOST_PROCESSES = 64
# how long Redis may be away after that
_LIMIT_S = 900.0
_READY_LIMIT_S = 60.0
# a failure begins within this time after the person, or the command, made it
_BEGINS_S = 3.0
# a Redis that replies after this time was not seen to fail
_SEEN_AWAY_MS = 500
# each process makes so many ids a second
_RATE, _LABEL = 1_000, "gameday"
# between two numbered writes
_WRITE_EVERY_S = 0.01
# the default for Sentinel and Cluster; the end of a failover cannot be seen from here
_LEAST_SLACK_S = 15
# for clocks of two servers that differ
_CLOCKS_S = 3
_COLUMNS = "acknowledged lost away_ms identities replicas noticed longest_pause_ms slowest_start_ms never_started ids "
_COLUMNS += "repeated settings reason"


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a trial: what Redis lost, and what the processes did meanwhile.

    Attributes:
        acknowledged, lost: how many numbered writes Redis acknowledged, and how many of them are gone.
        lost_for_ms: from the first lost write to the last.
        away_ms: the longest time without an acknowledgement.
        identities: how many pairs of run id and replication id Redis showed.
        replicas: the most that Redis reported.
        noticed: whether the pool has another incarnation.
        unidentified: why scripts cannot see the identity of Redis; empty if they can.
        ids, repeated: how many ids were made, and how many of them repeat another one.
        longest_pause_ms: between two ids of a process that was there from the start.
        slowest_start_ms, never_started: of the processes that were started later.
    """

    acknowledged: int
    lost: int
    lost_for_ms: int
    away_ms: int
    identities: int
    replicas: int
    noticed: bool
    unidentified: str
    ids: int = 0
    repeated: int = 0
    longest_pause_ms: int = 0
    slowest_start_ms: int = 0
    never_started: int = 0

    @property
    def failed(self) -> bool:
        """True if anything was seen that a failure does."""
        return self.lost > 0 or self.away_ms > _SEEN_AWAY_MS or self.identities > 1

    @property
    @in_json
    def settings(self) -> dict[str, Any]:
        """The settings that connect() needs with this Redis."""
        return self._advice[0]

    @property
    @in_json
    def reason(self) -> str:
        """Why these settings."""
        return self._advice[1]

    @property
    def _advice(self) -> tuple[dict[str, Any], str]:
        if self.unidentified:
            return {"durability": "none"}, f"scripts cannot tell this Redis from another one: {self.unidentified}"
        if self.lost and not self.noticed:
            text = "acknowledged writes were lost, and Redis shows nothing by which scripts notice it"
            return {"durability": "none"}, text
        chosen: dict[str, Any] = {"durability": "detect"}
        reasons = ["no acknowledged write was lost in this trial, which does not prove that none ever is"]
        if self.lost:
            reasons = [
                "acknowledged writes were lost, and the pool noticed it: with durability assured, ids would repeat"
            ]
        if self.replicas and self.identities > 1:
            lost_for_s = self.lost_for_ms / 1000
            chosen["failover_slack"] = max(_LEAST_SLACK_S, round(2 * lost_for_s + 1)) + _CLOCKS_S
            reasons.append(f"a replica took over, and {lost_for_s:.1f} s of writes to the old master were lost")
        if self.replicas and self.lost:
            chosen["min_replicas"] = "all"
            reasons.append("with min_replicas, a lease counts only when the replicas have it")
        return chosen, "; ".join(reasons)


def pauses(fleet: Fleet, first: int) -> dict[str, Any]:
    """Return the longest pause of the *first* processes of *fleet*, and how long later ones took to make an id."""
    longest, starts_ms, layout = 0, [], Layout()
    for index, process in enumerate(fleet.processes):
        ticks = [an_id >> layout.timestamp_shift for an_id in process.ids]
        if index < first:
            longest = max([longest, *(after - before for before, after in itertools.pairwise(ticks))])
        elif ticks:
            starts_ms.append(round(layout.ms_at(ticks[0]) - 1000 * process.started_s))
    return {
        "longest_pause_ms": longest * layout.tick_ms,
        "slowest_start_ms": max(starts_ms, default=0),
        "never_started": len(fleet.processes) - first - len(starts_ms),
    }


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
        self._identities: set[tuple[str, str]] = set()
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
                    self._identities.add((str(info.get("run_id", "")), str(info.get("master_replid", ""))))

    def replied_s(self) -> float:
        """Return the time of the last acknowledged write, in seconds of the monotonic clock; 0: none."""
        return next(reversed(self._acknowledged.values()), 0.0)

    def stop(self) -> None:
        """Write no more."""
        self._end.set()
        if self.is_alive():
            self.join()

    def trial(self, *, noticed: bool, unidentified: str) -> Trial:
        """Return what was seen of the writes. Call it after stop(). Raises StoreUnavailable if Redis is away."""
        from snowredis.servers.runner import translated

        with translated(self._where):
            there = {int(name) for name in self._client.hkeys(self.key)}
        times = list(self._acknowledged.values())
        lost = [moment for number, moment in self._acknowledged.items() if number not in there]
        away_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        lost_for_s = lost[-1] - lost[0] if lost else 0.0
        durations = round(1000 * lost_for_s), round(1000 * away_s)
        return Trial(len(times), len(lost), *durations, len(self._identities), self._replicas, noticed, unidentified)


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("url", metavar="URL", help="of the Redis that will fail, as connect() takes it")
    text = "processes that make ids, 2 to 32 (default: 4)"
    parser.add_argument("--workers", type=number(2, 32), default=4, metavar="N", help=text)
    text = "of their leases, 2 to 60 seconds (default: 5, or 27.5 with Sentinel or Cluster)"
    parser.add_argument("--ttl", type=number(2, 60, float), metavar="S", help=text)
    parser.add_argument("--do", metavar="COMMAND", help="a shell command that makes Redis fail, instead of a person")


def _run(args: argparse.Namespace) -> int:
    """Find out what your Redis loses when it fails, and which settings it needs.

    Makes a pool of its own, starts processes that make ids, and writes numbers, while you fail over, restart, freeze or
    empty this Redis. Then it prints what Redis lost, how long processes paused, how many ids repeated, and the settings
    to use. All its keys are deleted at the end.

    examples:
      snowredis gameday redis://test/0                    and then make it fail
      snowredis gameday redis://test/0 --do ./restart.sh  by a command
    """
    from snowredis.monitor.checks import missing_identity
    from snowredis.servers.runner import translated
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
            wait_until(
                lambda: all(each.count for each in fleet.processes),
                limit_s=_READY_LIMIT_S,
                failure="not all processes made ids",
            )
            # how far the trial is
            say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
            say(f"{args.workers} processes make ids in the pool {name}.")
            _while_failing(args.do, fleet, canary.replied_s, 1.5 * ttl_s + slack_s, say)
            canary.stop()
            noticed = pool.info().incarnation != began.incarnation
            trial = canary.trial(noticed=noticed, unidentified=unidentified)
        finally:
            with uninterrupted():
                canary.stop()
                fleet.close()
                keys = (*pool_keys(name), canary.key)
                try:
                    # no reservation matters of a pool that no process will use again
                    with translated(pool.where):
                        pool.client.delete(*keys)
                except SnowredisError as error:
                    print(f"its keys may be left, {', '.join(keys)}: {error}", file=sys.stderr)
        if not trial.failed:
            raise CommandError(
                ExitCode.ERROR,
                f"{trial.acknowledged:,} writes were acknowledged without a pause, and Redis shows one identity: no "
                "failure was seen, so there is no verdict. Make Redis fail, and try again",
            )
        checked = fleet.check()
        trial = replace(trial, ids=checked.ids, repeated=checked.duplicates, **pauses(fleet, args.workers))
    show(trial, _COLUMNS, as_json=args.json)
    return ExitCode.FOUND_ERRORS if trial.repeated else ExitCode.OK


def _while_failing(
    command: str | None, fleet: Fleet, replied_s: Callable[[], float], settle_s: float, say: Callable[[str], object]
) -> None:
    """Let Redis fail, start processes meanwhile, and wait until *settle_s* after it replies again."""
    started_s = time.monotonic()

    def start() -> None:
        nonlocal started_s
        if time.monotonic() - started_s >= _START_EVERY_S and len(fleet.processes) < _MOST_PROCESSES:
            started_s = time.monotonic()
            fleet.start(_LABEL)

    if command is None:
        say("Now fail over, restart, freeze or empty your Redis. Press Enter when it is done.")
        lines: list[str] = []
        pressed = threading.Thread(target=lambda: lines.append(sys.stdin.readline()), daemon=True)
        pressed.start()
        wait_until(lambda: not pressed.is_alive(), start)
        if not any(lines):
            text = "standard input has ended, so nobody made Redis fail: there is no verdict. Give a command with --do"
            raise CommandError(ExitCode.USAGE, text)
    else:
        with subprocess.Popen(command, shell=True) as failing:  # noqa: S602 - the user's own command
            wait_until(lambda: failing.poll() is not None, start)
        if failing.returncode:
            text = f"the command ended with exit code {failing.returncode}, so there is no verdict"
            raise CommandError(ExitCode.ERROR, text)
    over_s = time.monotonic()
    wait_until(
        lambda: replied_s() > over_s + _BEGINS_S, start, _LIMIT_S, "Redis did not reply", ExitCode.REDIS_UNAVAILABLE
    )
    say(f"Redis replies. New processes have {settle_s:.0f} s to start.")
    settled_s = time.monotonic() + settle_s
    wait_until(lambda: time.monotonic() > settled_s, start)


GAMEDAY = Command("gameday", _run, _add_arguments, json="one object, for a reviewer")
