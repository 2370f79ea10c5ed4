"""`sql`: print functions, partitions and fences for ids in a database. Needs no Redis and does not import redis-py."""

from __future__ import annotations

import argparse

from snowredis.cli.options import Command, Parser, layout_text, moment_ms, positive, seconds
from snowredis.core.presets import resolve_layout
from snowredis.process.clock import now_ms


def _add_arguments(parser: Parser) -> None:
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


def _run(args: argparse.Namespace) -> None:
    from snowredis.core.sql import fence, functions, partitions

    layout = resolve_layout(layout_text(args))
    if args.fence is not None:
        trigger = fence(args.database, layout, args.fence, args.column, lag_ms=round(args.lag * 1000))
        # the client of MariaDB ends a statement at each semicolon
        statements = iter(["DELIMITER //", f"{trigger} //", "DELIMITER ;"] if args.database == "mariadb" else [trigger])
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
month, in UTC. With --fence: a trigger that refuses rows with old ids, for PostgreSQL 14 or later and MariaDB.""",
    [
        ("snowredis sql postgresql | psql shop", "for the default layout"),
        ("snowredis sql mariadb --layout twitter --prefix t", "t_time(), t_worker(), …"),
        ("snowredis sql postgresql --table orders --by day", "partitions of 12 days"),
        ("snowredis sql mariadb --fence orders --lag 60", "for snowredis.readers"),
    ],
    _add_arguments,
    _run,
)
