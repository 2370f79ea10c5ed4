"""`registry free`: let another pool have a number, as a person says."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Parser, natural
from snowredis.cli.output import duration, printable
from snowredis.cli.registry_access import add_registry, not_found, open_named

SUMMARY = "free the number of a pool that will never make ids again"
ABOUT = """Another pool may then be created with this very number; `auto` never gives it. Ids of both pools differ by
their times, as long as the old pool makes none any more."""
EXAMPLES = [
    ("snowredis registry free 17", "its pool is gone for good"),
    ("snowredis registry free 17 --registry world", "of another registry"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("number", type=natural, metavar="NUMBER")
    add_registry(parser, positional=False)


def run(args: argparse.Namespace) -> int:
    from snowredis.snowflake.registry import Status

    with open_named(args) as registry:
        reply = registry.retire(args.number)
        match reply.status, *reply.fields:
            case Status.MISSING, *_:
                raise not_found(registry)
            case Status.UNKNOWN, *_:
                raise CommandError(
                    ExitCode.BAD_INPUT, f"no pool has the number {args.number}; nothing was changed"
                )
            case Status.ALIVE, pool, age_ms, owner:
                raise CommandError(
                    ExitCode.BAD_INPUT,
                    f"pool {printable(pool, 80)} is alive: it confirmed its number {duration(int(age_ms))} ago, "
                    f"{printable(owner, 200)}. Nothing was changed. Stop its processes, wait 3 minutes, and repeat.",
                )
            case _, pool:
                print(f"number {args.number} of registry {registry.name} is free; pool {pool} had it")
    return ExitCode.OK
