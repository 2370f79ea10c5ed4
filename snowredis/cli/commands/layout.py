"""`layout` and `sql`: show layouts; print functions, partitions and fences for their ids in a database.

Both need no Redis and do not import redis-py.
"""

from __future__ import annotations

import argparse

from snowredis.cli.options import Command, Parser, layout_text, moment_ms, number
from snowredis.cli.output import table, wrapped, write
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts, preset_name, preset_source, resolve_layout
from snowredis.process.clock import now_ms

# --- layout -------------------------------------------------------------------------------------


def _add_layout_arguments(parser: Parser) -> None:
    parser.add_argument("layout", nargs="?", metavar="NAME|SPEC")


def _layout(args: argparse.Namespace) -> None:
    """Show how the 63 bits of an id are divided into fields.

    Without arguments: all presets. With a name or a spec: one layout in full.

    examples:
      snowredis layout                           the presets, side by side
      snowredis layout twitter                   one, and its source
      snowredis layout '39/0/0/16/8;tick_ms=10'  a spec
      snowredis layout 41/0/2/12/8               with more workers
    """
    write(_presets() if args.layout is None else _in_full(resolve_layout(args.layout)))


def _presets() -> list[str]:
    columns = [("layout", False), ("bits", False), ("until", False)]
    columns += [(title, True) for title in ("years", "workers", "ids/s", "tick")]
    rows = [
        (
            name,
            str(layout).partition(" ")[0],
            f"{layout.end:%Y-%m-%d}" if layout.end else "past 9999",
            "over" if layout.end_ms <= now_ms() else f"{layout.lifetime_years:,.1f}",
            f"{layout.workers:,}",
            f"{int(layout.ids_per_second):,}",
            f"{layout.tick_ms:,} ms",
        )
        for name, layout in layouts.items()
    ]
    notes = [
        "",
        "bits: timestamp/datacenter/backup/worker/sequence",
        "workers: per datacenter; ids/s: per worker",
        "over: for reading old ids only",
        "all about one: snowredis layout NAME",
    ]
    return [*table(columns, rows), *notes]


def _in_full(layout: Layout) -> list[str]:
    lines = layout.describe().split("\n")
    if layout.end_ms <= now_ms():
        lines.append("over         for reading old ids only: no pool can be made with it")
    lines.append(f"spec         {layout_spec(layout)}")
    if name := preset_name(layout):
        lines += [f"preset       {name}", *wrapped("source       ", preset_source(name))]
    return lines


LAYOUT = Command("layout", _layout, _add_layout_arguments)

# --- sql ----------------------------------------------------------------------------------------


def _add_sql_arguments(parser: Parser) -> None:
    from snowredis.core.sql import DIALECTS, PERIODS

    parser.add_argument("database", choices=list(DIALECTS), metavar="DATABASE", help=", ".join(DIALECTS))
    parser.add_layout()
    parser.add_argument("--table", help="print partitions of this table instead")
    text = "print the trigger that refuses old ids, on which readers of this table rely"
    parser.add_argument("--fence", metavar="TABLE", help=text)
    text = "seconds from which --fence refuses an id (default: 60)"
    parser.add_argument("--lag", type=number(0.1, 86_400, float), default=60.0, metavar="S", help=text)
    parser.add_argument("--column", default="id", help="of the ids (default: id)")
    text = "one partition for each (default: month)"
    parser.add_argument("--by", choices=PERIODS, default="month", help=text)
    text = "a time in the first one (default: now)"
    parser.add_argument("--start", dest="start_ms", type=moment_ms, metavar="TIME", help=text)
    parser.add_argument("--count", type=number(1), default=12, metavar="N", help="how many (default: 12)")


def _sql(args: argparse.Namespace) -> None:
    """Print functions, partitions and fences for ids in a database.

    Prints SQL and runs nothing. Without --table: functions snowredis_time, _first_id, _worker and _text (base62), in
    PostgreSQL also those that pg_partman calls; in SQLite, queries with a parameter. With --table: partitions by day or
    month, in UTC. With --fence: a trigger that refuses rows with old ids, for PostgreSQL 14 or later.

    examples:
      snowredis sql postgresql | psql shop              for the default layout
      snowredis sql mariadb --layout twitter            snowredis_time(), …
      snowredis sql postgresql --table orders --by day  partitions of 12 days
      snowredis sql postgresql --fence orders --lag 60  for snowredis.readers
    """
    from snowredis.core.sql import fence, functions, partitions

    layout = resolve_layout(layout_text(args))
    if args.fence is not None:
        statements = iter([fence(args.database, layout, args.fence, args.column, lag_ms=round(args.lag * 1000))])
    elif args.table is None:
        statements = functions(args.database, layout)
    else:
        start_ms = now_ms() if args.start_ms is None else args.start_ms
        statements = partitions(
            args.database, layout, args.table, args.column, by=args.by, start_ms=start_ms, count=args.count
        )
    print("\n".join(statements))


SQL = Command("sql", _sql, _add_sql_arguments)
