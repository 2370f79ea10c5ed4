"""`registry create`: create a registry of shard numbers that is really new."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_settings, natural, settings
from snowredis.cli.registry_access import add_registry, open_named

SUMMARY = "create a registry that is really new"
ABOUT = """The layout says where in an id the number is: all pools of the registry need layouts with the same datacenter
bits in the same place. Number 0 is left to pools without a registry, unless --first 0 is given.

Redis may lose a registry, as any key. Its pools remember their numbers and create it again, closed. So never run this
for a registry that existed: it could give numbers a second time."""
EXAMPLES = [
    ("snowredis registry create --layout game-shards", "4,096 numbers"),
    ("snowredis registry create world --layout twitter", "of another name"),
    ("snowredis registry create --layout twitter --first 8", "0 to 7 are in use"),
]


def add_arguments(parser: Parser) -> None:
    add_registry(parser)
    add_settings(parser, "layout")
    parser.add_argument(
        "--durability",
        choices=("detect", "assured"),
        default="detect",
        help="whether Redis may lose writes that it acknowledged: detect: yes, in a restart or failover, after which "
        "the registry gives no new numbers before a person opens it; assured: never (default: detect)",
    )
    parser.add_argument(
        "--first", type=natural, default=1, metavar="N", help="the lowest number that is given (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    from snowredis.core.presets import resolve_layout
    from snowredis.errors import ConfigError
    from snowredis.snowflake.registry import Place, Status

    place = Place.of(resolve_layout(settings(args)[1].get("layout")))
    if args.first >= place.capacity:
        raise ConfigError(f"--first {args.first} is too high: the highest number is {place.capacity - 1}")
    with open_named(args, place) as registry:
        reply = registry.create(durability=args.durability, first=args.first)
        if reply.status is Status.CREATED:
            numbers = f"{args.first:,} to {place.capacity - 1:,}"
            print(f"registry {registry.name} at {registry.where} was created; it gives the numbers {numbers}")
            return ExitCode.OK
        print(f"registry {registry.name} at {registry.where} already exists; nothing was changed")
        if reply.closed:
            print(f"it gives no new numbers; see: snowredis registry show {registry.name}")
    return ExitCode.OK
