"""`layout` and `sql`: show layouts; print functions, partitions and fences for their ids in a database.

Both need no Redis and do not import redis-py.
"""

from __future__ import annotations

import argparse
from typing import Any

from snowredis.cli.options import Command, Parser, layout_text, moment_ms, positive, seconds
from snowredis.cli.output import Cell, Column, Line, print_json, table, wrapped, write
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts, preset_name, preset_source, resolve_layout
from snowredis.core.values import ID_BITS
from snowredis.process.clock import now_ms

# --- layout -------------------------------------------------------------------------------------

_BITS = ("timestamp_bits", "datacenter_bits", "backup_bits", "worker_bits", "sequence_bits")
# arguments of Layout
_ARGUMENTS = (*_BITS, "tick_ms", "epoch_ms", "worker_last")


def _add_layout_arguments(parser: Parser) -> None:
    parser.add_argument("layout", nargs="?", metavar="NAME|SPEC")
    parser.add_argument("--json", action="store_true", help="an object, or a list of the presets")


def _layout(args: argparse.Namespace) -> None:
    layout = None if args.layout is None else resolve_layout(args.layout)
    if args.json:
        presets = layouts.values()
        print_json(layout_record(layout) if layout else [layout_record(preset) for preset in presets])
    else:
        write(_in_full(layout) if layout else _presets())


def _presets() -> list[Line]:
    columns = [Column("layout"), Column("bits", optional=True), Column("tick", right=True, optional=True)]
    columns += [Column("until"), Column("years", right=True), Column("workers", right=True)]
    columns += [Column("ids/s", right=True)]
    rows: list[list[Cell]] = []
    for name, layout in layouts.items():
        used_up = layout.end_ms <= now_ms()
        end = f"{layout.end:%Y-%m-%d}" if layout.end else "past 9999"
        rows.append(
            [
                (name, "strong"),
                "/".join(str(getattr(layout, width)) for width in _BITS),
                f"{layout.tick_ms:,} ms",
                (end, "bad" if used_up else ""),
                ("over", "bad") if used_up else f"{layout.lifetime_years:,.1f}",
                f"{layout.workers:,}",
                f"{int(layout.ids_per_second):,}",
            ]
        )
    notes = [
        "",
        "bits: timestamp/datacenter/backup/worker/sequence",
        "workers: per datacenter; ids/s: per worker",
        "over: for reading old ids only",
        "all about one: snowredis layout NAME",
    ]
    return [*table(columns, rows), *([(note, "dim")] for note in notes)]


def _in_full(layout: Layout) -> list[Line]:
    lines: list[Line] = [[(text, "")] for text in layout.describe().split("\n")]
    if layout.end_ms <= now_ms():
        lines.append([("over         for reading old ids only: no pool can be made with it", "bad")])
    lines.append([("spec         ", ""), (layout_spec(layout), "note")])
    if name := preset_name(layout):
        lines.append([("preset       ", ""), (name, "strong")])
        lines += wrapped([("source       ", "")], preset_source(name))
    return lines


def layout_record(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON shows it."""
    from snowredis.core.as_json import time_as_json

    preset = preset_name(layout)
    return {
        "name": preset,
        "spec": layout_spec(layout),
        **{name: getattr(layout, name) for name in _ARGUMENTS},
        "ends_at": time_as_json(layout.end_ms),
        "over": layout.end_ms <= now_ms(),
        "lifetime_years": round(layout.lifetime_years, 3),
        "workers": layout.workers,
        "datacenters": layout.datacenters,
        "namespaces": layout.namespaces,
        "ids_per_second": layout.ids_per_second,
        "source": preset_source(preset) if preset else None,
    }


_FIELD_STYLES = {
    "timestamp": "note",
    "datacenter": "warn",
    "backup": "warn",
    "worker": "good",
    "sequence": "strong",
    "gene": "good",
}


def draw(layout: Layout, an_id: int) -> list[Line]:
    """Return the diagram of the 64 bits of an id of *layout*, with a label below each field."""
    from snowredis.core.text import bits_of

    fields = bits_of(layout, an_id)
    above = "0" * (ID_BITS + 1 - layout.total_bits)
    cells = [(above, "always 0", "dim")]
    # a value of the backup bits is a namespace
    labels = {name: name.replace("backup", "namespace") for name in fields}
    cells += [(bits, f"{labels[name]} {int(bits, 2)}", _FIELD_STYLES[name]) for name, bits in fields.items()]
    rules = ["─" * len(bits) for bits, _, _ in cells]
    middle: Line = [("│", "dim")]
    for bits, _, style in cells:
        middle += [(bits, style), ("│", "dim")]
    lines: list[Line] = [[(f"┌{'┬'.join(rules)}┐", "dim")], middle, [(f"└{'┴'.join(rules)}┘", "dim")]]
    # the last field's label first, and strokes that lead from the other fields to theirs
    for at, (_, label, style) in reversed([*enumerate(cells)]):
        strokes = "".join("│".ljust(len(bits) + 1) for bits, _, _ in cells[:at])
        lines.append([(f" {strokes}", "dim"), (label, style)])
    return lines


LAYOUT = Command(
    "layout",
    "show how the 63 bits of an id are divided into fields",
    "Without arguments: all presets. With a name or a spec: one layout in full.",
    [
        ("snowredis layout", "the presets, side by side"),
        ("snowredis layout twitter", "one, and its source"),
        ("snowredis layout '39/0/0/16/8;tick_ms=10'", "a spec"),
        ("snowredis layout 41/0/2/12/8", "with more workers"),
    ],
    _add_layout_arguments,
    _layout,
)

# --- sql ----------------------------------------------------------------------------------------


def _add_sql_arguments(parser: Parser) -> None:
    from snowredis.core.sql import DIALECTS, PERIODS
    from snowredis.core.text import DIGITS

    parser.add_argument("database", choices=list(DIALECTS), metavar="DATABASE", help=", ".join(DIALECTS))
    parser.add_layout()
    text = "the functions' names begin with it (default: snowredis)"
    parser.add_argument("--prefix", default="snowredis", metavar="NAME", help=text)
    text = f"form of NAME_text: {', '.join(DIGITS)} (default: base62)"
    parser.add_argument("--format", choices=list(DIGITS), default="base62", metavar="FORM", help=text)
    parser.add_argument("--table", help="print partitions of this table instead")
    text = "print the trigger that refuses old ids, on which readers of this table rely"
    parser.add_argument("--fence", metavar="TABLE", help=text)
    text = "seconds from which --fence refuses an id (default: 60)"
    parser.add_argument("--lag", type=seconds, default=60.0, metavar="S", help=text)
    parser.add_argument("--column", default="id", help="of the ids (default: id)")
    text = "one partition for each (default: month)"
    parser.add_argument("--by", choices=PERIODS, default="month", help=text)
    text = "a time in the first one (default: now)"
    parser.add_argument("--start", dest="start_ms", type=moment_ms, metavar="TIME", help=text)
    parser.add_argument("--count", type=positive, default=12, metavar="N", help="how many (default: 12)")


def _sql(args: argparse.Namespace) -> None:
    from snowredis.core.sql import fence, functions, partitions

    layout = resolve_layout(layout_text(args))
    if args.fence is not None:
        statements = iter([fence(args.database, layout, args.fence, args.column, lag_ms=round(args.lag * 1000))])
    elif args.table is None:
        statements = functions(args.database, layout, prefix=args.prefix, form=args.format)
    else:
        start_ms = now_ms() if args.start_ms is None else args.start_ms
        statements = partitions(
            args.database, layout, args.table, args.column, by=args.by, start_ms=start_ms, count=args.count
        )
    print("\n".join(statements))


SQL = Command(
    "sql",
    "print functions, partitions and fences for ids in a database",
    """Prints SQL and runs nothing. Without --table: the functions NAME_time, NAME_first_id, NAME_worker and NAME_text,
in PostgreSQL also those that pg_partman calls; in SQLite, queries with a parameter. With --table: partitions by day or
month, in UTC. With --fence: a trigger that refuses rows with old ids, for PostgreSQL 14 or later.""",
    [
        ("snowredis sql postgresql | psql shop", "for the default layout"),
        ("snowredis sql mariadb --layout twitter --prefix t", "t_time(), t_worker(), …"),
        ("snowredis sql postgresql --table orders --by day", "partitions of 12 days"),
        ("snowredis sql postgresql --fence orders --lag 60", "for snowredis.readers"),
    ],
    _add_sql_arguments,
    _sql,
)
