"""`migrate status`: say how far the migration of a column is, and what comes next."""

from __future__ import annotations

import argparse
import json

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, labelled, next_line, open_migration, plan_lines
from snowredis.cli.options import Parser
from snowredis.cli.output import write

SUMMARY = "say how far the migration of a column is, and what comes next"
ABOUT = ""
EXAMPLES = [("snowredis migrate status postgresql://host/db#orders.id", "")]


def add_arguments(parser: Parser) -> None:
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="one object")


def run(args: argparse.Namespace) -> int:
    with open_migration(args.source) as migration:
        entry, following = migration.entry(), migration.next_step()
    if args.json:
        state = entry.state if entry else None
        print(
            json.dumps(
                {"state": state, "next": following, "offset": str(entry.plan.offset) if entry else None}
            )
        )
        return ExitCode.OK
    if entry is None:
        print("no migration of this column was started")
    else:
        write([*labelled([("state", entry.state, "strong", "")]), *plan_lines(entry.plan)])
    if following:
        write([next_line(following, args.source)])
    return ExitCode.OK
