"""`segment delete`: delete a tag that nobody uses any more."""

from __future__ import annotations

import argparse

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser
from snowredis.cli.segment_access import add_tag, confirm, tag_of

SUMMARY = "delete a tag"
ABOUT = """Its numbers are known to nobody then: a tag of the same name would hand them out a second time."""
EXAMPLES = [("snowredis segment delete coupons", "asks")]


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import delete_tag

    url, tag, _ = tag_of(args)
    if not confirm(
        args, f"Delete {tag}, so that nobody knows any more which of its numbers were handed out?"
    ):
        print("it was not deleted")
        return ExitCode.ERROR
    print(f"tag {tag} was deleted" if delete_tag(url, tag) else f"there is no tag {tag}")
    return ExitCode.OK
