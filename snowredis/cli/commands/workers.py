"""`workers`: show which process has which worker id of a pool, and which died. It only reads."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from snowredis.cli import output, pool_text
from snowredis.cli.options import Command, Parser, open_known_pool, seconds
from snowredis.cli.output import Line, is_terminal, print_json, printable, write

if TYPE_CHECKING:
    from snowredis.monitor.pool_monitor import Reading
    from snowredis.monitor.snapshot import EndedLease, PoolInfo


def _add_workers_arguments(parser: Parser) -> None:
    parser.add_redis()
    text = "repeat until Ctrl-C, by default every 2 s"
    parser.add_argument("--watch", nargs="?", type=seconds, const=2.0, metavar="SECONDS", help=text)
    parser.add_argument("--all", action="store_true", help="also worker ids without a lease")
    pool_text.add_filter(parser)
    parser.add_argument("--group-by", choices=("host", "label"), help="one line for each host or label")
    text = "say that you have seen who died or is silent: that is no warning any more"
    parser.add_argument("--acknowledge", action="store_true", help=text)
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="one object; with --watch one object per line")


def _workers(args: argparse.Namespace) -> None:
    from snowredis.monitor.pool_monitor import PoolPoller

    with open_known_pool(args) as pool:
        if args.acknowledge:
            seen = pool.acknowledge_deaths()
            print(
                f"acknowledged: who died or fell silent in pool {pool.name} up to {args.time_text(seen.until_ms)}",
                file=sys.stderr,
            )
        read = partial(PoolPoller(pool).read, idle=pool_text.WorkerFilter(args).wants_idle)
        if args.watch is not None:
            _show_repeatedly(read, pool.where, args)
        else:
            _show(first_reading(read), pool.where, args)


def first_reading(read: Callable[[], Reading]) -> Reading:
    """Return the first reading. Raises the error of a pool that cannot be read."""
    reading = read()
    if reading.error is not None:
        raise reading.error
    return reading


def _show(reading: Reading, where: str, args: argparse.Namespace) -> None:
    if args.json:
        snapshot = reading.snapshot and pool_text.WorkerFilter(args).chosen(reading.snapshot)
        print_json(replace(reading, snapshot=snapshot).report)
    else:
        write(_lines(reading, where, args))


def _show_repeatedly(read: Callable[[], Reading], where: str, args: argparse.Namespace) -> None:
    """Show the workers every --watch seconds until Ctrl-C: on a terminal in place, else one state after the other."""
    reading = first_reading(read)
    in_place = is_terminal(sys.stdout) and not args.json
    try:
        with output.alternate_screen() if in_place else contextlib.nullcontext() as draw:
            while True:
                if draw is not None:
                    draw(_lines(reading, where, args, shutil.get_terminal_size().lines))
                elif reading.error is None or args.json:
                    _show(reading, where, args)
                    if not args.json:
                        print()
                time.sleep(args.watch)
                was_away, reading = reading.error is not None, read()
                if reading.error is not None and not was_away and not in_place:
                    print(f"snowredis: {printable(str(reading.error), 300)}; trying again", file=sys.stderr)
    finally:
        if in_place:
            # the last state stays visible, with space for the shell's prompt
            write(_lines(reading, where, args, shutil.get_terminal_size().lines - 3))


def _lines(reading: Reading, where: str, args: argparse.Namespace, height: int | None = None) -> list[Line]:
    """Return the status, the pool and its workers in at most *height* lines."""
    snapshot = reading.snapshot
    status = pool_text.status_lines(
        reading.status, args.time_text, advice=height is None, most=None if height is None else 3
    )
    if snapshot is None:
        return status
    info, chosen = snapshot.info, pool_text.WorkerFilter(args).chosen(snapshot)
    workers = chosen.workers
    lines = [*pool_text.pool_lines(where, snapshot), *status]
    if reading.error is not None:
        lines.append([(f"below: the state of {args.time_text(reading.read_at_ms)}, not up to date", "bad")])
    if args.group_by:
        return [*lines, [], *pool_text.group_table(args.group_by, workers, chosen.deaths)][:height]
    lines += [[], *_ended_lines("ended without a release in the last hour", chosen.deaths, info, args, height)]
    lines += _ended_lines("silent, without a lease", chosen.silent, info, args, height)
    if not workers:
        none = "no worker matches" if snapshot.workers else "no worker is alive"
        if not snapshot.workers and snapshot.lanes_until_ms > info.now_ms:
            until = args.time_text(snapshot.lanes_until_ms)
            none = f"no worker has a lease; those that lost theirs go on in outage lanes, until {until} at most"
        return [*lines, [(none, "dim")]][:height]
    # the table's head and the line that counts the others take the rest
    fits = len(workers) if height is None else max(1, height - len(lines) - 1)
    shown = workers if len(workers) <= fits else workers[: max(1, fits - 1)]
    lines += pool_text.worker_table(shown, info, output.terminal_width())
    if len(shown) < len(workers):
        others = len(workers) - len(shown)
        lines.append([(f"… and {others:,} more: --state, --host and --label choose, --group-by counts", "dim")])
    return lines[:height]


# the newest of the processes that died or are silent
MOST_ENDED = 20


def _ended_lines(
    title: str, ended: Sequence[EndedLease], info: PoolInfo, args: argparse.Namespace, height: int | None
) -> list[Line]:
    from snowredis.monitor.fleet import counted

    if not ended:
        return []
    # at most a third of the screen
    most = MOST_ENDED if height is None else min(MOST_ENDED, max(1, height // 3 - 4))
    lines = [*pool_text.ended_table(ended[:most], info.now_ms, args.time_text)]
    if most < len(ended):
        lines.append([(f"… and {len(ended) - most:,} more: --group-by host counts them, --json has all", "dim")])
    return [[(f"{title}: {counted(ended)}", "strong")], *lines, []]


WORKERS = Command(
    "workers",
    "show which process has which worker id, and which died",
    """Ids, ids/s, clock and namespace are as of a worker's last heartbeat. State: healthy, late (no
heartbeat for half a ttl), silent (none for two thirds of a ttl), no-ids (it sends heartbeats, and gets no ids),
unknown (Redis may have forgotten it), expired (the lease ended without a release), free (released). Workers that ended
without a release are listed for an hour, those that are silent for as long as they may have ids.""",
    [
        ("snowredis workers", "of pool 'default'"),
        ("snowredis workers --pool orders --watch", "every 2 s, until Ctrl-C"),
        ("snowredis workers --state silent --host 'web-*'", "find some"),
        ("snowredis workers --group-by host", "a line for each host"),
        ("snowredis workers --acknowledge", "the died and silent were seen"),
        ("snowredis workers --pool orders --all --json", "free ones too, for programs"),
    ],
    _add_workers_arguments,
    _workers,
)
