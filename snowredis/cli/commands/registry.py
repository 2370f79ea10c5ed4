"""`registry`: the group of commands for registries of shard numbers."""

from __future__ import annotations

import argparse

from snowredis.cli.commands import registry_create, registry_free, registry_open, registry_show
from snowredis.cli.options import Parser, add_commands, print_help

SUMMARY = "give each shard its own number: create, show and open registries"
ABOUT = """A registry gives numbers to pools, each to one pool: the values of the datacenter bits, so that ids of
different shards are never equal. A pool gets its number with: snowredis pool create NAME --datacenter auto."""
EXAMPLES = [
    ("snowredis registry create --layout twitter", "once"),
    ("snowredis registry show", "which pool has which number"),
    ("snowredis registry open", "after a restart of its Redis"),
    ("snowredis registry free 17", "its pool is gone for good"),
]


def add_arguments(parser: Parser) -> None:
    add_commands(parser, "action", [registry_create, registry_show, registry_open, registry_free])


def run(args: argparse.Namespace) -> int:
    return print_help(args)
