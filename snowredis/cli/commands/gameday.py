"""`gameday`: find out what a Redis loses when it fails, with a fleet that makes ids meanwhile.

The fleet is processes of fleet_process.py in a pool of its own, whose keys are deleted at the end. Numbered writes
show what is lost, and INFO which identities Redis has: see canary.py.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from snowredis.cli.commands.demo import end_processes, int64s, start_process
from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.options import Command, Parser, between, natural, seconds
from snowredis.cli.output import pairs, printable, write
from snowredis.core.layout import Layout

# between two starts of processes while Redis fails
_START_EVERY_S = 3.0
# how long Redis may be away after that
_LIMIT_S = 900.0
_READY_LIMIT_S = 60.0
# a failure begins within this time after the person, or the command, made it
_BEGINS_S = 3.0
_STOP_TIMEOUT_S = 20.0


class Fleet:
    """Processes that make ids, the first ones before Redis fails.

    Args:
        settings: of each process, as fleet_process.py takes them.
    """

    def __init__(self, directory: Path, url: str, settings: list[str]) -> None:
        self._directory, self._url, self._settings = directory, url, settings
        self.processes: list[subprocess.Popen[bytes]] = []
        self._started_s: list[float] = []

    def start(self) -> None:
        """Start one more process."""
        path = self._directory / str(len(self.processes))
        self._started_s.append(time.time())
        self.processes.append(start_process(self._url, [*self._settings, str(path)], path.with_suffix(".log")))

    def makes_ids(self) -> bool:
        """Return True if all processes have made ids."""
        return all(map(self._ids, range(len(self.processes))))

    def _ids(self, number: int) -> Sequence[int]:
        path = self._directory / str(number)
        return int64s(path.read_bytes() if path.exists() else b"")

    def ids(self) -> dict[str, int]:
        """Return how many ids were made, and how many of them repeat another one."""
        ids = [an_id for number in range(len(self.processes)) for an_id in self._ids(number)]
        return {"ids": len(ids), "repeated": len(ids) - len(set(ids))}

    def pauses(self, first: int) -> dict[str, Any]:
        """Return the longest pause of the *first* processes, and how long later ones took to make an id."""
        longest_s, starts_s, layout = 0.0, [], Layout()
        for number, started_s in enumerate(self._started_s):
            ticks = [an_id >> layout.timestamp_shift for an_id in self._ids(number)]
            if number < first:
                gaps = (after - before for before, after in itertools.pairwise(ticks))
                longest_s = max(longest_s, max(gaps, default=0) / 1000)
            elif ticks:
                starts_s.append(layout.ms_at(ticks[0]) / 1000 - started_s)
        return {
            "longest_pause_s": round(longest_s, 2),
            "slowest_start_s": round(max(starts_s, default=0.0), 2),
            "never_started": len(self._started_s) - first - len(starts_s),
        }


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("url", metavar="URL", help="of the Redis that will fail, as connect() takes it")
    text = "processes that make ids, 2 to 32 (default: 4)"
    parser.add_argument("--workers", type=between(2, 32, natural), default=4, metavar="N", help=text)
    text = "of their leases, 2 to 60 seconds (default: 5, or 27.5 with Sentinel or Cluster)"
    parser.add_argument("--ttl", type=between(2, 60, seconds), metavar="S", help=text)
    parser.add_argument("--do", metavar="COMMAND", help="a shell command that makes Redis fail, instead of a person")
    parser.add_argument("--json", metavar="FILE", help="also write the result to this file, for a reviewer")


def _run(args: argparse.Namespace) -> int:
    from snowredis.cli.canary import Canary, advise
    from snowredis.monitor.checks import missing_identity
    from snowredis.snowflake.open import pool_config
    from snowredis.snowflake.protocol import pool_keys
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
        fleet = Fleet(Path(directory), args.url, ["gameday", name, str(ttl_s), durability])
        try:
            pool.create(pool_config({"pool": name, "ttl": ttl_s, "durability": durability, "failover_slack": slack_s}))
            began = pool.info()
            canary.start()
            for _ in range(args.workers):
                fleet.start()
            _wait(fleet.makes_ids, _READY_LIMIT_S, "the processes make no ids")
            print(f"{args.workers} processes make ids in the pool {name}.", flush=True)
            _while_failing(args.do, fleet, canary.replied_s, 1.5 * ttl_s + slack_s)
            canary.stop()
            seen, noticed = canary.seen(), pool.info().incarnation != began.incarnation
        finally:
            with uninterrupted():
                canary.stop()
                end_processes(fleet.processes, _STOP_TIMEOUT_S)
                # no reservation matters of a pool that no process will use again
                pool.client.delete(*pool_keys(name), canary.key)
        settings, reasons = advise(seen, noticed=noticed, unidentified=unidentified)
        result: dict[str, Any] = {
            "server": pool.where,
            "writes": seen._asdict(),
            "noticed": noticed,
            "ids": fleet.ids() | fleet.pauses(args.workers),
            "settings": settings,
            "reasons": reasons,
        }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    _show(result)
    return ExitCode.FOUND_ERRORS if result["ids"]["repeated"] else ExitCode.OK


def _while_failing(command: str | None, fleet: Fleet, replied_s: Callable[[], float], settle_s: float) -> None:
    """Let Redis fail, start processes meanwhile, and wait until *settle_s* after it replies again."""
    fail: Callable[[], object] = input
    if command is None:
        print("Now fail over, restart, freeze or empty your Redis. Press Enter when it is done.", flush=True)
    else:
        fail = partial(subprocess.run, command, shell=True, check=False)  # noqa: S604 - the user's own command
    failing = threading.Thread(target=fail, daemon=True)
    failing.start()
    _wait(lambda: not failing.is_alive(), fleet=fleet)
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
            fleet.start()
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
    write(pairs(lines, wrap=True))


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
