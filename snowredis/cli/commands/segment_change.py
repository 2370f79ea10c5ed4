"""`segment change`: give a tag other constants or other servers."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, natural
from snowredis.cli.segment_access import add_constants, add_tag, confirm, tag_of
from snowredis.settings import split_urls

SUMMARY = "give a tag other constants, or other servers"
ABOUT = """Closes the tag on all its servers, finds the highest number that any of them handed out, and opens it beyond
that with the new constants. Processes keep the segments that they have, and are refused more until they have the new
settings, too: restart them. After an interruption the tag is closed: repeat the command."""
EXAMPLES = [
    ("snowredis segment change invoices --maximum 9999999", "a longer range"),
    ("snowredis segment change tickets --to 'redis://a redis://b'", "two servers"),
]


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    add_constants(parser)
    parser.add_argument("--to", metavar="URLS", help="the servers from now on (default: those of --url)")
    text = "no number from N on was handed out: needed if a server does not reply, or does not know the tag"
    parser.add_argument("--from", dest="first", type=natural, metavar="N", help=text)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import change_tag

    url, tag, constants = tag_of(args)
    if not confirm(args, f"Close {tag}, and open it with other settings?"):
        print("nothing was changed")
        return ExitCode.ERROR
    following = change_tag(url, split_urls(args.to) if args.to else url, tag, first=args.first, **constants)
    print(
        f"tag {tag} was changed; its next number is {following:,}. Restart its processes with the new settings"
    )
    return ExitCode.OK
