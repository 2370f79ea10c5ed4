"""`migrate finish`: remove old columns and triggers; there is no way back from here."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, open_migration
from snowredis.cli.options import Parser

SUMMARY = "remove old columns and triggers; there is no way back from here"
ABOUT = """Verifies first. Processes with the old code, which insert rows without an id, fail from then on: stop them
before."""
EXAMPLES = [("snowredis migrate finish postgresql://host/db#orders.id", "the last step")]


def add_arguments(parser: Parser) -> None:
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    with open_migration(args.source) as migration:
        migration.finish()
    print("finished")
    return ExitCode.OK
