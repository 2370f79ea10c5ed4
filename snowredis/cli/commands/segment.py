"""`segment`: the group of commands for tags, whose numbers are handed out in segments."""

from __future__ import annotations

import argparse

from snowredis.cli.commands import (
    segment_change,
    segment_create,
    segment_delete,
    segment_open,
    segment_show,
)
from snowredis.cli.options import Parser, add_commands, print_help

SUMMARY = "numbers in segments: create, show, open and change tags"
ABOUT = """A tag is a sequence of numbers, such as those of invoices, which Redis hands out in segments:
snowredis.generator("segment", tag="invoices")."""
EXAMPLES = [
    ("snowredis segment create invoices", "once, for a new tag"),
    ("snowredis segment show invoices", "for how long it lasts"),
    ("snowredis segment open invoices --from 5000", "Redis may have lost some"),
    ("snowredis segment change invoices --to URLS", "one server more"),
]


def add_arguments(parser: Parser) -> None:
    add_commands(
        parser, "action", [segment_create, segment_show, segment_open, segment_change, segment_delete]
    )


def run(args: argparse.Namespace) -> int:
    return print_help(args)
