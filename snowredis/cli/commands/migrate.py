"""`migrate`: the group of commands that change the ids of a table in use."""

from __future__ import annotations

import argparse

from snowredis.cli.commands import (
    migrate_backfill,
    migrate_finish,
    migrate_proof,
    migrate_rollback,
    migrate_start,
    migrate_status,
    migrate_switch,
    migrate_verify,
)
from snowredis.cli.options import Command, Parser, add_commands, print_help

SUMMARY = "change the ids of a table in use: from auto-increment, or from another layout"
ABOUT = """In this order: proof, start, backfill, verify, switch, finish; rollback instead of finish. Each can be run
again after it failed or was stopped. All but proof need the extra merge: pip install 'snowredis[merge]'."""
EXAMPLES = [
    ("snowredis migrate proof --max 81234567", "first of all"),
    ("snowredis migrate start postgresql://host/db#orders.id", "then"),
]


def add_arguments(parser: Parser) -> None:
    steps: list[Command] = [migrate_proof, migrate_start, migrate_backfill, migrate_verify, migrate_switch]
    add_commands(parser, "action", [*steps, migrate_rollback, migrate_finish, migrate_status])


def run(args: argparse.Namespace) -> int:
    return print_help(args)
