"""`gameday`: find out what a Redis loses when it fails, with a fleet that makes ids meanwhile.

The fleet is processes of gameday_process.py in a pool of its own, whose keys are deleted at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import subprocess
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snowredis.cli.commands.demo import start_python
from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.options import Command, Parser, between, natural, seconds
from snowredis.cli.output import pairs, printable, write

if TYPE_CHECKING:
    from snowredis.monitor.gameday import Canary
    from snowredis.monitor.worker_pool import WorkerPool

# between two starts of processes while Redis fails
_START_EVERY_S = 3.0
# how long Redis may be away after that
_LIMIT_S = 900.0
_READY_LIMIT_S = 60.0
# a failure begins within this time after the person, or the command, made it
_BEGINS_S = 3.0
_STOP_TIMEOUT_S = 20.0


class Fleet:
    """Processes that make ids, the first ones before Redis fails."""

    def __init__(self, directory: Path, url: str, settings: list[str]) -> None:
        self._directory, self._url, self._settings = directory, url, settings
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one more process."""
        path = self._directory / str(len(self._processes))
        made = start_python(
            "snowredis.cli.gameday_process",
            [*self._settings, str(path)],
            path.with_suffix(".log"),
            SNOWREDIS_URL=self._url,
        )
        self._processes.append(made)

    def makes_ids(self, count: int) -> bool:
        """Say if the first *count* processes have made ids of both kinds."""
        files = (self._directory / f"{number}.{kind}" for number in range(count) for kind in ("lease", "setnx"))
        return all(file.exists() and file.stat().st_size for file in files)

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            if process.stdin and not process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline_s - time.monotonic()))
            process.kill()
            process.wait()

    def result(self, kind: str, first: int) -> dict[str, Any]:
        """Return what became of the ids of a kind, and the pauses of the *first* processes and of later ones."""
        ids = array("q")
        for file in sorted(self._directory.glob(f"*.{kind}")):
            ids.frombytes(file.read_bytes()[: file.stat().st_size // 8 * 8])
        seen = [
            json.loads(file.read_text())[kind]
            for file in sorted(self._directory.glob("*.json"), key=lambda f: int(f.stem))
        ]
        starts = [each["first_s"] for each in seen[first:] if "first_s" in each]
        return {
            "ids": len(ids),
            "repeated": len(ids) - len(set(ids)),
            "longest_pause_s": round(max((each.get("pause_s", 0.0) for each in seen[:first]), default=0.0), 2),
            "slowest_start_s": round(max(starts, default=0.0), 2),
            "never_started": len(seen[first:]) - len(starts),
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
    from snowredis.monitor.checks import missing_identity
    from snowredis.monitor.gameday import Canary, advise
    from snowredis.monitor.worker_pool import WorkerPool
    from snowredis.snowflake.open import pool_config

    name = f"gameday-{secrets.token_hex(4)}"
    with (
        interrupted_by_signals(),
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(WorkerPool(args.url, name)) as pool,
        _without_traces(pool, name),
    ):
        unidentified = missing_identity(pool.client, "")
        durability = "none" if unidentified else "detect"
        slack_s = pool.server.failover_slack_ms / 1000
        ttl_s = args.ttl or 5 + 1.5 * slack_s
        pool.create(pool_config({"pool": name, "ttl": ttl_s, "durability": durability, "failover_slack": slack_s}))
        began, canary = pool.info(), Canary(args.url, name)
        fleet = Fleet(Path(directory), args.url, [name, str(ttl_s), durability])
        canary.start()
        try:
            for _ in range(args.workers):
                fleet.start()
            _wait(lambda: fleet.makes_ids(args.workers), _READY_LIMIT_S, "the processes make no ids")
            print(f"{args.workers} processes make ids in the pool {name}.", flush=True)
            _while_failing(args.do, fleet, canary, 1.5 * ttl_s + slack_s)
            canary.stop()
            loss, noticed = canary.loss(), pool.info().incarnation != began.incarnation
        finally:
            with uninterrupted():
                canary.stop()
                fleet.stop()
        chosen, reasons = advise(
            loss,
            identities=len(canary.identities),
            noticed=noticed,
            replicas=canary.replicas,
            unidentified=unidentified,
        )
        result: dict[str, Any] = {
            "server": pool.where,
            "writes": loss._asdict(),
            "identities": canary.identities,
            "noticed": noticed,
            "replicas": canary.replicas,
            "ids": fleet.result("lease", args.workers),
            "set_nx_ex": fleet.result("setnx", args.workers),
            "settings": chosen,
            "reasons": reasons,
        }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    _show(result)
    return ExitCode.FOUND_ERRORS if result["ids"]["repeated"] else ExitCode.OK


@contextlib.contextmanager
def _without_traces(pool: WorkerPool, name: str) -> Iterator[None]:
    """Delete all keys at the end: no reservation matters of a pool that no process will use again."""
    from snowredis.monitor.gameday import canary_key, node_keys
    from snowredis.snowflake.protocol import pool_keys

    try:
        yield
    finally:
        with uninterrupted():
            pool.client.delete(*pool_keys(name), canary_key(name), *node_keys(name))


def _while_failing(command: str | None, fleet: Fleet, canary: Canary, settle_s: float) -> None:
    """Let Redis fail, start processes meanwhile, and wait until *settle_s* after it replies again."""
    if command is None:
        print("Now fail over, restart, freeze or empty your Redis. Press Enter when it is done.", flush=True)
        reading = threading.Thread(target=input, daemon=True)
        reading.start()
        failing: Callable[[], bool] = reading.is_alive
    else:
        shell = subprocess.Popen(command, shell=True)  # noqa: S602 - the user's own command
        failing = lambda: shell.poll() is None  # noqa: E731
    next_s, end_s, limit_s = 0.0, 0.0, float("inf")
    while not end_s or time.monotonic() < end_s:
        now_s = time.monotonic()
        if now_s >= next_s:
            next_s = now_s + _START_EVERY_S
            fleet.start()
        if not failing():
            limit_s = min(limit_s, now_s + _LIMIT_S)
            if not end_s and canary.replied_s() > limit_s - _LIMIT_S + _BEGINS_S:
                end_s = now_s + settle_s
                print(f"Redis replies. New processes have {settle_s:.0f} s to start.", flush=True)
        if now_s > limit_s:
            raise CommandError(ExitCode.REDIS_UNAVAILABLE, f"Redis did not reply for {_LIMIT_S:.0f} s: the trial ended")
        time.sleep(0.1)


def _wait(ready: Callable[[], bool], limit_s: float, failure: str) -> None:
    end_s = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > end_s:
            raise CommandError(ExitCode.REDIS_UNAVAILABLE, f"{failure} within {limit_s:.0f} s: the trial ended")
        time.sleep(0.1)


def _show(result: dict[str, Any]) -> None:
    writes, ids, other = result["writes"], result["ids"], result["set_nx_ex"]
    changed = "shows another identity" if len(result["identities"]) > 1 else "shows the same identity"
    chosen = ", ".join(f"{name}={value!r}" for name, value in result["settings"].items())
    lines = [
        ("acknowledged writes", f"{writes['acknowledged']:,}, of which {writes['lost']:,} were lost"),
        ("Redis", f"was away for {writes['away_s']:.1f} s, and {changed}"),
        ("living processes", f"longest pause {ids['longest_pause_s']:.2f} s"),
        ("new processes", f"slowest start {ids['slowest_start_s']:.1f} s, {ids['never_started']} did not start"),
        ("ids of snowredis", f"{ids['ids']:,}, {ids['repeated']:,} repeated"),
        ("ids by SET NX EX", f"{other['ids']:,}, {other['repeated']:,} repeated"),
        ("use", chosen),
        *(("", printable(reason, 300)) for reason in result["reasons"]),
    ]
    write(pairs(lines, wrap=True))


GAMEDAY = Command(
    "gameday",
    "find out what your Redis loses when it fails, and which settings it needs",
    """Makes a pool of its own, starts processes that make ids, and writes numbers, while you fail over, restart, freeze
or empty this Redis. Then it prints what Redis lost, how long processes paused, how many ids repeated, how many a
registry of SET NX EX would have repeated, and the settings to use. All its keys are deleted at the end.""",
    [
        ("snowredis gameday redis://test/0", "and then make it fail"),
        ("snowredis gameday redis://test/0 --do ./restart.sh", "by a command"),
    ],
    _add_arguments,
    _run,
)
