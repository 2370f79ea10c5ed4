"""`pool`: the group of commands that create, show and delete pools."""

from __future__ import annotations

import argparse

from snowredis.cli.commands import pool_change_layout, pool_create, pool_delete, pool_show
from snowredis.cli.options import Parser, add_commands, print_help

SUMMARY = "create, show, change and delete pools"
ABOUT = ""
EXAMPLES = [
    ("snowredis pool create orders --ttl 30", "before the first start of a fleet"),
    ("snowredis pool show", "all pools of a Redis"),
    ("snowredis pool delete orders", "asks first"),
]


def add_arguments(parser: Parser) -> None:
    add_commands(parser, "action", [pool_create, pool_show, pool_change_layout, pool_delete])


def run(args: argparse.Namespace) -> int:
    return print_help(args)
