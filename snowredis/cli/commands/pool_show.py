"""`pool show`: show one pool in full, or all pools of a Redis in a table. Only reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from snowredis.cli.commands.layout import name_of
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_pool_name, add_redis, add_times, open_known_pool, open_pool
from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    Pair,
    duration,
    pairs,
    print_json,
    printable,
    table,
    terminal_width,
    write,
)
from snowredis.cli.status_text import status_lines
from snowredis.errors import SnowredisError
from snowredis.settings import POOL_DURATIONS, SETTINGS

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import PoolInfo, Snapshot

_DURABILITIES = {
    "detect": "a restart or failover may lose writes, and is detected",
    "assured": "no acknowledged write is ever lost, as its creator declared",
    "none": "writes may be lost undetected, so every new worker waits",
}

SUMMARY = "show a pool, or all of them"
ABOUT = ""
EXAMPLES = [
    ("snowredis pool show", "one line for each pool of this Redis"),
    ("snowredis pool show orders", "settings, use and counters of one"),
    ("snowredis pool show orders --json", "for programs"),
]


def add_arguments(parser: Parser) -> None:
    add_pool_name(parser)
    add_redis(parser, pool=False)
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="an object, or a list of all pools")


def run(args: argparse.Namespace) -> int:
    if args.pool is None:
        return _show_all(args)
    from snowredis.monitor.status import status_of

    with open_known_pool(args) as pool:
        snapshot, where = pool.snapshot(), pool.where
    info, status = snapshot.info, status_of(snapshot)
    if args.json:
        print_json({"pool": info, "status": status})
    else:
        head: Line = [("pool ", "dim"), (info.name, "strong"), (f" at {where}", "dim")]
        rows = [*settings_rows(info), *_state_rows(snapshot, args.time_text)]
        write([head, *status_lines(status, args.time_text), *pairs(rows, wrap=True)])
    return ExitCode.OK


def settings_rows(info: PoolInfo) -> list[Pair]:
    """Return the pool's settings by name."""
    stored = info.settings
    name = name_of(info.layout)
    durability = stored.get("durability", SETTINGS["durability"].default_text)
    meaning = _DURABILITIES.get(durability, "unknown to this version")
    return [
        ("layout", f"{f'{name}  ' if name else ''}{info.layout}"),
        ("datacenter", _datacenter(stored)),
        *((name.replace("_", " "), _seconds(stored.get(f"{name}_ms", ""))) for name in POOL_DURATIONS),
        ("durability", f"{printable(durability)}: {meaning}"),
        ("guard rollbacks", "on" if stored.get("guard_rollbacks") == "1" else "off"),
    ]


def _datacenter(stored: dict[str, str]) -> str:
    number = printable(stored.get("datacenter", "0"))
    registry = stored.get("registry", "").partition("/")[0]
    return f"{number}, the shard number that registry {printable(registry, 64)} gave" if registry else number


def _seconds(ms: str) -> str:
    return f"{int(ms) / 1000:g} s" if ms.isdecimal() else "?"


def _state_rows(snapshot: Snapshot, time_text: Callable[[int], str]) -> list[Pair]:
    info, dead = snapshot.info, snapshot.dead_leases
    floor = "none: the pool was declared new"
    if info.floor_ms > info.now_ms:
        floor = f"new workers wait {duration(info.floor_ms - info.now_ms)}"
    elif info.floor_ms:
        floor = f"passed at {time_text(info.floor_ms)}, {duration(info.now_ms - info.floor_ms)} ago"
    counters = ("claims", "releases", "expired", "reclaimed", "returned", "adopted", "lost")
    last_alarm = (f"{info.alarms:,}, the last: {printable(_alarm_text(info, time_text), 200)}", "bad")
    return [
        (
            "worker ids",
            f"{info.used:,} of {info.capacity:,} leased{f' (about {dead:,} by dead processes)' if dead else ''}, "
            f"{info.free:,} free, peak {info.peak:,}",
        ),
        ("floor", floor),
        ("counters", ", ".join(f"{name} {getattr(info, name):,}" for name in counters)),
        ("alarms", [last_alarm] if info.alarms else "0"),
        *_layout_rows(info, time_text),
        ("created", time_text(info.created_ms) if info.created_ms else "?"),
        ("incarnation", f"{printable(info.incarnation, 100)}, version {info.version:,}"),
    ]


def _layout_rows(info: PoolInfo, time_text: Callable[[int], str]) -> list[Pair]:
    """Return the layouts that the pool had, has and will have; nothing for a pool that always had one."""
    if len(info.layouts) < 2:
        return []
    rows: list[Pair] = []
    for period in info.layouts:
        since = f"from {time_text(period.from_ms)}" if period.from_ms else "from the beginning"
        until = f" to {time_text(period.until_ms)}" if period.until_ms else ""
        named = name_of(period.layout)
        rows.append(
            ("layouts" if not rows else "", f"{since}{until}: {f'{named}  ' if named else ''}{period.layout}")
        )
    if info.changes_ms:
        rows.append(
            ("changes", [(f"at {time_text(info.changes_ms)}; start new processes after that", "warn")])
        )
    return rows


def _alarm_text(info: PoolInfo, time_text: Callable[[int], str]) -> str:
    if not info.alarm_until_ms:
        return info.alarm
    since, until = time_text(info.alarm_from_ms), time_text(info.alarm_until_ms)
    return f"ids may have been repeated between {since} and {until}"


def _show_all(args: argparse.Namespace) -> int:
    infos: list[PoolInfo] = []
    unreadable: list[str] = []
    with open_pool(args) as server:
        where = server.where
        for name in server.pools():
            try:
                with open_pool(args, name) as pool:
                    infos.append(pool.info())
            except SnowredisError as error:
                # keys of another program may look like a pool; the others are shown nevertheless
                unreadable.append(f"{printable(name, MAX_FOREIGN)}: {printable(str(error), 200)}")
    if args.json:
        print_json(infos)
    elif infos or unreadable:
        write([[("pools at ", "dim"), (where, "")], [], *_all(infos)])
    else:
        print(f"there is no pool at {where}; create one with: snowredis pool create NAME")
    for line in unreadable:
        print(line, file=sys.stderr)
    return ExitCode.OK


def _all(infos: list[PoolInfo]) -> list[Line]:
    columns = [Column("pool", shrinks=True), Column("leased", right=True), Column("of", right=True)]
    columns += [Column("peak", right=True, optional=True), Column("claims", right=True, optional=True)]
    columns += [Column("deaths", right=True, optional=True), Column("alarms", right=True)]
    columns += [Column("ttl", right=True, optional=True), Column("layout", shrinks=True, optional=True)]
    rows: list[list[Cell]] = [
        [
            (info.name, "strong"),
            (f"{info.used:,}", "warn" if info.free == 0 else "good" if info.used else ""),
            f"{info.capacity:,}",
            f"{info.peak:,}",
            f"{info.claims:,}",
            f"{max(0, info.deaths - info.returned):,}",
            (f"{info.alarms:,}", "bad" if info.alarms else ""),
            _seconds(info.settings.get("ttl_ms", "")),
            name_of(info.layout) or str(info.layout),
        ]
        for info in infos
    ]
    return table(columns, rows, terminal_width())
