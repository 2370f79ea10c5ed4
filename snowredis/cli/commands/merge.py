"""`merge`: the group of commands that find ids that clash between shards, and change them."""

from __future__ import annotations

import argparse

from snowredis.cli.commands import merge_apply, merge_check, merge_plan
from snowredis.cli.options import Parser, add_commands, print_help

SUMMARY = "find ids that clash between shards, and change them"
ABOUT = "Needs the extra merge: pip install 'snowredis[merge]'."
EXAMPLES = [
    ("snowredis merge check a.parquet#id b.csv#id", "which ids exist twice"),
    ("snowredis merge plan URL_A URL_B", "new ids for those of B that clash"),
    ("snowredis merge apply merge.plan --copy", "change them, and copy B into A"),
]


def add_arguments(parser: Parser) -> None:
    add_commands(parser, "action", [merge_check, merge_plan, merge_apply])


def run(args: argparse.Namespace) -> int:
    return print_help(args)
