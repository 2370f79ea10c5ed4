"""`migrate switch`: exchange old and new columns, in one short transaction."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, next_line, open_migration
from snowredis.cli.options import Parser
from snowredis.cli.output import write

SUMMARY = "exchange old and new columns, in one short transaction"
ABOUT = """Verifies first. Then it waits for a moment without long transactions, for 0.3 s each time, so that writes do
not queue behind it. From then on applications may write new ids; processes with the old code may still insert rows
without an id. Old values are kept beside the new ones, for rollback."""
EXAMPLES = [("snowredis migrate switch postgresql://host/db#orders.id", "after verify")]


def add_arguments(parser: Parser) -> None:
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    with open_migration(args.source) as migration:
        locked_s = migration.switch()
    print(f"switched; the tables were locked for {locked_s * 1000:.0f} ms")
    print("deploy the code that makes the new ids; when no old process is left, finish; or roll back")
    write([next_line("finish", args.source), next_line("rollback", args.source)])
    return ExitCode.OK
