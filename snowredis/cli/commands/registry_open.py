"""`registry open`: let a registry give new numbers again, after it learned of the pools on given servers."""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.commands.registry_show import closed_text, records_table
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Parser, natural
from snowredis.cli.output import write
from snowredis.cli.registry_access import add_registry, not_found, open_named

SUMMARY = "let a registry give new numbers again, after its Redis may have forgotten some"
ABOUT = """Run it when every pool that ever got a number is in the list that it shows. Pools whose processes are alive
come back by themselves within a minute. For others, name the servers where they are with --from: their own hashes
hold their numbers. With --above, new numbers are higher than that one, whatever the registry knows.

A pool that is missing may find its number given to another one; then it is refused, and no id is repeated as long as
the registry can be reached."""
EXAMPLES = [
    ("snowredis registry open", "shows the numbers, asks"),
    ("snowredis registry open --from redis://s7 redis://s8", "reads their pools"),
    ("snowredis registry open world --above 412 --yes", "the highest given"),
]


def add_arguments(parser: Parser) -> None:
    add_registry(parser)
    parser.add_argument(
        "--from",
        dest="servers",
        nargs="+",
        default=[],
        metavar="URL",
        help="servers whose pools confirm their numbers first",
    )
    parser.add_argument("--above", type=natural, metavar="N", help="give only numbers above this one")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    from snowredis.snowflake.registration import confirm_pools
    from snowredis.snowflake.registry import NO_NUMBER

    with open_named(args) as registry:
        for server in args.servers:
            for line in confirm_pools(server, registry, lambda place: open_named(args, place)):
                print(line)
        state = registry.read()
        if state is None:
            raise not_found(registry)
        if state.closed:
            print(f"registry {state.name} is closed: {closed_text(state.closed)}. It knows these pools:")
        else:
            print(f"registry {state.name} is open, as far as is known. It knows these pools:")
        write(records_table(state))
        above = NO_NUMBER if args.above is None else args.above
        following = max(state.next_number, above + 1)
        if not args.yes:
            if not sys.stdin.isatty():
                raise CommandError(
                    ExitCode.USAGE,
                    "standard input is not a terminal, so nobody can confirm that these are all pools of the registry; "
                    "it was not opened. Confirm with --yes.",
                )
            question = f"Are these all pools that have a number? Then give {following} and above [y/N] "
            try:
                agreed = input(question).strip().lower() in ("y", "yes")
            except EOFError:
                print()
                agreed = False
            if not agreed:
                print("it was not opened")
                return ExitCode.ERROR
        reply = registry.open(above, read=state.incarnation)
        if reply.closed:
            print(
                f"it was not opened: Redis may have forgotten more meanwhile ({closed_text(reply.closed)}). Run it "
                f"again: snowredis registry open {registry.name}",
                file=sys.stderr,
            )
            return ExitCode.ERROR
        print(f"registry {registry.name} gives new numbers again, from {reply.highest + 1}")
    return ExitCode.OK
