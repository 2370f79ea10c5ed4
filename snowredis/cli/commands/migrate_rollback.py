"""`migrate rollback`: go back to the old ids, from any state but finished."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, open_migration
from snowredis.cli.options import Parser

SUMMARY = "go back to the old ids, and remove whatever was added"
ABOUT = """Possible until finish. Rows that were written since the switch get the old ids that were counted for them,
and so do the columns that refer to them. Stop the processes that make new ids first."""
EXAMPLES = [("snowredis migrate rollback postgresql://host/db#orders.id", "no row is lost")]


def add_arguments(parser: Parser) -> None:
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    with open_migration(args.source) as migration:
        migration.rollback()
    print("rolled back: tables, columns and ids are those of before")
    return ExitCode.OK
