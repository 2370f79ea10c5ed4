"""`migrate verify`: compare old and new columns by counts and checksums."""

from __future__ import annotations

import argparse
import json

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, next_line, open_migration
from snowredis.cli.options import Parser
from snowredis.cli.output import Cell, Column, table, terminal_width, write

SUMMARY = "compare old and new columns by counts and checksums; changes nothing"
ABOUT = "Exit code 10 if they differ. Before the switch every row is compared, and after it every reference."
EXAMPLES = [("snowredis migrate verify postgresql://host/db#orders.id", "after the backfill")]


def add_arguments(parser: Parser) -> None:
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="one object per column")


def run(args: argparse.Namespace) -> int:
    with open_migration(args.source) as migration:
        checks = migration.verify()
        entry = migration.entry()
    wrong = any(check.wrong or check.orphans for check in checks)
    if args.json:
        for check in checks:
            print(json.dumps(check._asdict()))
        return ExitCode.FOUND_CLASHES if wrong else ExitCode.OK
    columns = [Column("column"), Column("rows", right=True), Column("values", right=True)]
    columns += [
        Column("wrong", right=True),
        Column("orphans", right=True),
        Column("checksum", right=True, optional=True),
    ]
    rows: list[list[Cell]] = [
        [
            check.column,
            f"{check.rows:,}",
            f"{check.values:,}",
            (f"{check.wrong:,}", "bad" if check.wrong else ""),
            (f"{check.orphans:,}", "bad" if check.orphans else ""),
            check.checksum,
        ]
        for check in checks
    ]
    if checks:
        write(table(columns, rows, terminal_width()))
    else:
        print("no column gets a second one, so there is nothing to compare")
    if not wrong and entry is not None:
        write([next_line("switch" if entry.state == "filled" else "finish", args.source)])
    return ExitCode.FOUND_CLASHES if wrong else ExitCode.OK
