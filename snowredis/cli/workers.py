"""`workers`: who holds which worker id of a pool, once or again and again. Only reads."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command, add_redis, open_known_pool, seconds, settings
from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    compact,
    duration,
    encodable,
    offset,
    plain,
    printable,
    table,
    terminal_width,
    width_of,
    write,
)

if TYPE_CHECKING:
    from snowredis.cli.browse import Browser
    from snowredis.lease.inspect import PoolInfo, WorkerInfo
    from snowredis.monitor.pool import WorkerPool

# two heartbeats at the default ttl take 10 s; people want to see more
_WATCH_S = 2.0
_LEAST_WATCH_S = 0.1


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "workers",
        summary="show who holds which worker id",
        about=(
            "Ids, ids/s, clock and namespace are as of a worker's last heartbeat. State: healthy, late (two heartbeats "
            "are missing), suspect (half a ttl without one), expired. While watching: arrows and PgUp/PgDn move, s "
            "sorts, r reverses, / filters, a shows all, q quits."
        ),
        examples=[
            ("snowredis workers", "of pool 'default'"),
            ("snowredis workers --pool orders --watch", "every 2 s, until Ctrl-C"),
            ("snowredis workers --pool orders --all --json", "free ones, too, for programs"),
        ],
        run=_workers,
    )
    add_redis(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=_WATCH_S,
        metavar="SECONDS",
        help="again and again (every 2 s) until Ctrl-C",
    )
    parser.add_argument("--all", action="store_true", help="also worker ids whose lease ended")
    parser.add_argument("--json", action="store_true", help="one object; with --watch one a line")


def _workers(args: argparse.Namespace) -> int:
    url, options = settings(args)
    with open_known_pool(url, options.get("pool", "default")) as pool:
        if args.watch is not None:
            _watch(pool, args, max(args.watch, _LEAST_WATCH_S))
        else:
            _once(pool, args)
    return ExitCode.OK


def _once(pool: WorkerPool, args: argparse.Namespace) -> None:
    infos, info = _look(pool, args.all)
    if args.json:
        print(json.dumps(_as_json(infos, info)), flush=True)
    else:
        write(_view(pool.where, infos, info, terminal_width(), None))


def _look(pool: WorkerPool, everybody: bool) -> tuple[list[WorkerInfo], PoolInfo]:
    """The workers first: ages are then counted from a time after their heartbeats."""
    return pool.workers(alive_only=not everybody), pool.info()


def _watch(pool: WorkerPool, args: argparse.Namespace, every_s: float) -> None:
    from snowredis.cli.live import can_be_live

    if args.json or not can_be_live():
        while True:
            _once(pool, args)
            time.sleep(every_s)
            if not args.json:
                print()
    _watch_live(pool, args, every_s)


def _watch_live(pool: WorkerPool, args: argparse.Namespace, every_s: float) -> None:
    """Draw at every look and at every key, until Ctrl-C or q."""
    from snowredis.cli.browse import Browser
    from snowredis.cli.keyboard import keyboard
    from snowredis.cli.live import display

    browser = Browser(everybody=args.all)
    # a pool that is not there is an error of the command, not of the display
    found = _look(pool, browser.everybody)
    trouble: list[Line] = []

    def lines(width: int, height: int) -> list[Line]:
        return [*_browse(pool.where, *found, browser, width, height - len(trouble)), *trouble]

    try:
        with display() as draw, keyboard() as keys:
            while not browser.quit:
                look_s = time.monotonic() + every_s
                everybody = browser.everybody
                draw(lines)
                while (left_s := look_s - time.monotonic()) > 0 and not browser.quit:
                    pressed = keys(left_s)
                    for key in pressed:
                        browser.press(key)
                    if browser.everybody != everybody:
                        break
                    if pressed:
                        draw(lines)
                if not browser.quit:
                    found, trouble = _look_again(pool, browser.everybody, found)
    finally:
        # the last state stays on the screen that was there before, with room for what the shell says
        size = shutil.get_terminal_size()
        write([*_view(pool.where, *found, size.columns, size.lines - 3 - len(trouble)), *trouble])


def _look_again(
    pool: WorkerPool, everybody: bool, before: tuple[list[WorkerInfo], PoolInfo]
) -> tuple[tuple[list[WorkerInfo], PoolInfo], list[Line]]:
    """What is to be seen now; or, while there is nothing to be seen, what was seen before and a line that says so."""
    from snowredis.errors import PoolNotFound, StoreUnavailable

    try:
        return _look(pool, everybody), []
    except (PoolNotFound, StoreUnavailable) as error:
        return before, [[], [(f"this is old: {printable(str(error), 200)}", "bad")]]


def _browse(
    where: str, infos: list[WorkerInfo], info: PoolInfo, browser: Browser, width: int, height: int
) -> list[Line]:
    """As _view(), but the part that was chosen, with a cursor, and a last line of what can be done."""
    from snowredis.cli.browse import HELP

    shown = browser.chosen(infos)
    first, after = browser.window(shown, height - 5)
    lines = [*_head(where, info), []]
    if shown:
        # laid out as a whole, so that no column moves when another page is shown
        head, *rows = _table(shown, info, width - 2)
        here = next((at for at in range(first, after) if shown[at].worker == browser.cursor), first)
        mark = "› " if encodable("›") else "> "
        lines.append([("  ", ""), *head])
        lines += [[(mark if at == here else "  ", "strong"), *rows[at]] for at in range(first, after)]
    else:
        lines.append([("no worker is alive" if not infos else "no worker matches the filter", "dim")])
    lines += [[] for _ in range(max(0, height - 1 - len(lines)))]
    return [*lines[: height - 1], _footer(browser, first, after, len(shown), len(infos), HELP)]


def _footer(browser: Browser, first: int, after: int, shown: int, known: int, help_text: str) -> Line:
    if browser.typing:
        return [
            ("filter: ", "note"),
            (printable(browser.words), "strong"),
            ("▏  Enter keeps it, Esc drops it", "dim"),
        ]
    place = f"{first + 1:,}–{after:,} of {shown:,}" if shown else "0"
    of_all = f" ({known:,})" if shown != known else ""
    line: Line = [(f"{place}{of_all}  by {browser.sort}{' reversed' if browser.reverse else ''}  ", "note")]
    if browser.words:
        line.append((f"filter: {printable(browser.words)}  ", "strong"))
    return [*line, (help_text, "dim")]


# --- the table -------------------------------------------------------------------------------------


def _view(
    where: str, infos: list[WorkerInfo], info: PoolInfo, width: int | None, height: int | None
) -> list[Line]:
    """The pool in two lines, then its workers; no more lines than *height*."""
    lines = [*_head(where, info), []]
    if not infos:
        return [*lines, [("no worker is alive", "dim")]]
    room = len(infos) if height is None else max(1, height - len(lines) - 1)
    left_out = len(infos) - room
    if left_out > 0:
        # room for the line that says so
        room, left_out = max(1, room - 1), left_out + 1
    lines += _table(infos[:room], info, width)
    if left_out > 0:
        lines.append([(f"… and {left_out:,} more: a higher window or --json shows them", "dim")])
    return lines


def _head(where: str, info: PoolInfo) -> list[Line]:
    use: Line = [
        (f"{info.used:,} of {info.capacity:,} worker ids leased", "warn" if info.free == 0 else ""),
        (f"  {info.free:,} free  peak {info.peak:,}  ", "dim"),
    ]
    if info.floor_ms > info.now_ms:
        use.append((f"new workers wait {duration(info.floor_ms - info.now_ms)} for the floor", "warn"))
    else:
        use.append(("no wait for new workers", "dim"))
    if info.alarms:
        use.append((f"  {info.alarms:,} alarms: {printable(info.alarm, 100)}", "bad"))
    return [[("pool ", "dim"), (info.name, "strong"), (f" at {where}", "dim")], use]


# a terminal that is narrower shows the state by the colour of the beat only
_WIDE = 100
_STATE_STYLES = {"healthy": "good", "late": "warn", "suspect": "bad", "expired": "dim", "free": "dim"}


def _table(infos: list[WorkerInfo], info: PoolInfo, width: int | None) -> list[Line]:
    full = _columns_and_rows(
        infos, info, lambda number: f"{number:,}", with_state=width is None or width >= _WIDE
    )
    lines = table(*full)
    if width is None or max(width_of(plain(line)) for line in lines) <= width:
        return lines
    return table(*_columns_and_rows(infos, info, compact, with_state=width >= _WIDE), width, gap=1)


def _columns_and_rows(
    infos: list[WorkerInfo], info: PoolInfo, count: Any, *, with_state: bool
) -> tuple[list[Column], list[list[Cell]]]:
    columns = [
        Column("worker", right=True),
        *([Column("state", least=7)] if with_state else []),
        Column("host", shrinks=True),
        Column("pid", right=True),
        Column("label", shrinks=True),
        Column("lease", right=True, least=6),
        Column("beat", right=True, least=6),
        Column("ids", right=True, least=6),
        Column("ids/s", right=True, least=6),
        Column("clock", right=True, least=6),
        Column("ns", right=True),
        Column("back", right=True),
    ]
    rows: list[list[Cell]] = []
    for worker in infos:
        quiet, state = "" if worker.alive else "dim", _STATE_STYLES.get(worker.state, "")
        lease: Cell = ("free" if not worker.token_hash else "ended", "dim")
        if worker.alive:
            lease = (
                duration(worker.lease_left_ms),
                "warn" if worker.lease_left_ms < info.ttl_ms / 2 else "good",
            )
        far = abs(worker.clock_offset_ms) > info.lead_ms and worker.alive
        rows.append(
            [
                (str(worker.worker), "strong" if worker.alive else "dim"),
                *([(worker.state, state)] if with_state else []),
                (printable(worker.host, MAX_FOREIGN), quiet),
                (str(worker.pid or ""), quiet),
                (printable(worker.label, MAX_FOREIGN), quiet),
                lease,
                (duration(worker.heartbeat_age_ms), state if worker.alive else "dim"),
                (count(worker.ids_made), quiet),
                (count(worker.ids_per_second), quiet),
                (offset(worker.clock_offset_ms), "warn" if far else quiet),
                (str(worker.namespace), "note" if worker.namespace and worker.alive else quiet),
                (str(worker.clock_backs), "warn" if worker.clock_backs and worker.alive else quiet),
            ]
        )
    return columns, rows


# --- for programs ----------------------------------------------------------------------------------


def pool_as_json(info: PoolInfo) -> dict[str, Any]:
    """A pool's state with its layout as a spec."""
    from snowredis.core.presets import layout_spec

    return asdict(info) | {"layout": layout_spec(info.layout), "settings": info.settings}


def _as_json(infos: list[WorkerInfo], info: PoolInfo) -> dict[str, Any]:
    return {
        "pool": pool_as_json(info),
        "workers": [asdict(worker) for worker in infos],
    }
