"""`workers`: show which process has which worker id of a pool, once or repeatedly. Only reads."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_redis, open_known_pool, seconds
from snowredis.cli.output import Line, alternate_screen, is_terminal, printable, terminal_width, write
from snowredis.cli.worker_table import pool_lines, worker_table
from snowredis.core.presets import layout_spec
from snowredis.errors import PoolNotFound, StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import PoolInfo, WorkerInfo
    from snowredis.monitor.worker_pool import WorkerPool

# heartbeats come every 5 s at the default ttl; more often shows leases that end in between
DEFAULT_INTERVAL_S = 2.0
MIN_INTERVAL_S = 0.1

SUMMARY = "show which process has which worker id"
ABOUT = """Ids, ids/s, clock and namespace are as of a worker's last heartbeat. State: healthy, late (no
heartbeat for a third of a ttl), suspect (none for half a ttl), expired. `snowredis top` also sorts and filters."""
EXAMPLES = [
    ("snowredis workers", "of pool 'default'"),
    ("snowredis workers --pool orders --watch", "every 2 s, until Ctrl-C"),
    ("snowredis workers --pool orders --all --json", "free ones too, for programs"),
]


def add_arguments(parser: Parser) -> None:
    add_redis(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=DEFAULT_INTERVAL_S,
        metavar="SECONDS",
        help="repeat until Ctrl-C, by default every 2 s",
    )
    parser.add_argument("--all", action="store_true", help="also worker ids whose lease ended")
    parser.add_argument("--json", action="store_true", help="one object; with --watch one object per line")


def run(args: argparse.Namespace) -> int:
    with open_known_pool(args) as pool:
        if args.watch is not None:
            _watch(pool, args, max(args.watch, MIN_INTERVAL_S))
        elif args.json:
            _print_json(*read(pool, show_all=args.all))
        else:
            write(_lines(pool.where, *read(pool, show_all=args.all)))
    return ExitCode.OK


def read(pool: WorkerPool, *, show_all: bool) -> tuple[list[WorkerInfo], PoolInfo]:
    """Return the workers and the pool as they are now.

    The workers are read first, so that the pool's time is not before their heartbeats.
    """
    return pool.workers(alive_only=not show_all), pool.info()


def _watch(pool: WorkerPool, args: argparse.Namespace, interval_s: float) -> None:
    """Show the workers every *interval_s* until Ctrl-C: on a terminal in place, else one state after the other."""
    workers, info = read(pool, show_all=args.all)
    error: list[Line] = []

    def show(draw: Callable[[list[Line]], None] | None) -> None:
        if args.json:
            _print_json(workers, info)
        elif draw is None:
            write([*_lines(pool.where, workers, info), []])
        else:
            draw([*_lines(pool.where, workers, info, shutil.get_terminal_size().lines - len(error)), *error])

    in_place = is_terminal(sys.stdout) and not args.json
    try:
        with alternate_screen() if in_place else contextlib.nullcontext() as draw:
            while True:
                if in_place or not error:
                    show(draw)
                time.sleep(interval_s)
                try:
                    (workers, info), error = read(pool, show_all=args.all), []
                except (PoolNotFound, StoreUnavailable) as failure:
                    if not in_place and not error:
                        print(f"snowredis: {printable(str(failure), 300)}; trying again", file=sys.stderr)
                    error = [[(f"not up to date: {printable(str(failure), 200)}", "bad")]]
    finally:
        if in_place:
            # the last state stays visible, with space for the shell's prompt
            rows = shutil.get_terminal_size().lines - 3 - len(error)
            write([*_lines(pool.where, workers, info, rows), *error])


def _lines(where: str, workers: list[WorkerInfo], info: PoolInfo, height: int | None = None) -> list[Line]:
    """Return the pool and its workers in at most *height* lines."""
    lines = [*pool_lines(where, info), []]
    if not workers:
        return [*lines, [("no worker is alive", "dim")]]
    # besides the table's head and the line that counts the others
    fits = len(workers) if height is None else max(1, height - len(lines) - 1)
    shown = workers if len(workers) <= fits else workers[: max(1, fits - 1)]
    lines += worker_table(shown, info, terminal_width())
    if len(shown) < len(workers):
        others = len(workers) - len(shown)
        lines.append([(f"… and {others:,} more: snowredis top shows them all", "dim")])
    return lines


def _print_json(workers: list[WorkerInfo], info: PoolInfo) -> None:
    state = {"pool": pool_as_json(info), "workers": [asdict(worker) for worker in workers]}
    print(json.dumps(state), flush=True)


def pool_as_json(info: PoolInfo) -> dict[str, Any]:
    """Return a pool's state with its layout as a spec."""
    return asdict(info) | {"layout": layout_spec(info.layout), "settings": info.settings}
