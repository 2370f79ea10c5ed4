"""`pool change-layout`: give a living pool another layout, if no id can be repeated."""

from __future__ import annotations

import argparse
import time

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_redis, open_known_pool, seconds
from snowredis.cli.output import duration, time_of
from snowredis.errors import ConfigError

SUMMARY = "give a living pool another layout, if no id can be repeated"
ABOUT = """First it proves that no id of the new layout, from the change on, equals one that the pool's layouts
could make before; if one can, nothing is changed. Then the change is planned: until its moment, workers go on, and
those with the new layout are refused. From then on, those with the old one are refused and stop; those with the new
one start after a wait of ttl + max-clock-lead + redis-skew + failover-slack, when all old reservations have ended.

whois goes on to work for old ids: the pool remembers which layout it had when."""
EXAMPLES = [
    ("snowredis pool change-layout orders 41/0/2/12/8", "in 10 s"),
    ("snowredis pool change-layout orders twitter --in 3600", "in an hour"),
    ("snowredis pool change-layout orders --undo", "before its moment"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("pool", metavar="NAME")
    parser.add_argument("new_layout", nargs="?", metavar="NEW", help="a preset's name, or a spec")
    add_redis(parser, pool=False)
    text = "when, in seconds from now (default: 10)"
    parser.add_argument("--in", dest="delay_s", type=seconds, default=10.0, metavar="S", help=text)
    parser.add_argument("--undo", action="store_true", help="undo a planned change")


def run(args: argparse.Namespace) -> int:
    from snowredis.core.presets import resolve_layout
    from snowredis.monitor.layout_change import change_layout, undo_change

    if (args.new_layout is None) != args.undo:
        raise ConfigError("name the new layout after the pool, or give --undo")
    caller_ms = time.time_ns() // 1_000_000
    with open_known_pool(args) as pool:
        info, client = pool.info(), pool.only_server()
        if args.undo:
            undo_change(client, info, caller_ms=caller_ms)
            print(f"pool {pool.name} at {pool.where} keeps its layout {info.layout}")
            return ExitCode.OK
        layout = resolve_layout(args.new_layout)
        change = change_layout(client, info, layout, delay_ms=round(args.delay_s * 1000), caller_ms=caller_ms)
        where = pool.where
    wait = duration(change.floor_ms - change.at_ms)
    print(f"pool {args.pool} at {where} changes its layout at {time_of(change.at_ms)}, in {args.delay_s:g} s")
    print(f"  from  {info.layout}")
    print(f"  to    {layout}")
    print(
        f"no id can be repeated: the old ids are all before {time_of(change.floor_ms)}, the new ones after; "
        f"{'every new id is greater than every old one' if change.sorted else 'new ids may be lower than old ones'}"
    )
    print(
        "until then the old layout goes on; after it, start processes with the new one: the first of them waits for "
        f"{wait}"
    )
    return ExitCode.OK
