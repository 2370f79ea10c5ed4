"""`segment open`: let a tag hand out numbers again, because a person knows from where on none was handed out."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, natural
from snowredis.cli.segment_access import add_constants, add_tag, confirm, tag_of

SUMMARY = "let a closed tag hand out numbers, after Redis may have lost some"
ABOUT = """With --from N: no number from N on was ever handed out, such as max(id) of the table plus what processes may
hold, twice the largest segment for each. With --as-reported: none beyond those that processes reported, since all of
them are alive and have reported. The tag opens there or later."""
EXAMPLES = [
    ("snowredis segment open invoices --from 5000", "asks"),
    ("snowredis segment open invoices --as-reported --yes", "all processes are alive"),
]


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    add_constants(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--from", dest="first", type=natural, metavar="N", help="no number from N on was handed out"
    )
    where.add_argument(
        "--as-reported",
        action="store_true",
        help="no number was handed out but those that processes reported",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import open_tag

    url, tag, constants = tag_of(args)
    what = "beyond those that processes reported" if args.first is None else f"from {args.first:,} on"
    if not confirm(args, f"Are you sure that no number of {tag} {what} was ever handed out?"):
        print("it was not opened")
        return ExitCode.ERROR
    following = open_tag(url, tag, args.first, **constants)
    print(f"tag {tag} is open; its next number is {following:,}")
    return ExitCode.OK
