"""`segment create`: create a tag that is really new."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser
from snowredis.cli.segment_access import add_constants, add_tag, tag_of

SUMMARY = "create a tag that is really new"
ABOUT = """Redis may lose a tag, as any key; then processes refuse numbers until somebody says from where on none was
handed out. So never run this for a tag that existed: its numbers would be handed out a second time."""
EXAMPLES = [
    ("snowredis segment create invoices", "1, 2, 3, …"),
    ("snowredis segment create coupons --start 100000 --maximum 999999", "six digits"),
]


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    add_constants(parser)


def run(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import create_tag

    url, tag, constants = tag_of(args)
    create_tag(url, tag, **constants)
    print(f"tag {tag} was created; its first number is {constants.get('start', 1):,}")
    return ExitCode.OK
