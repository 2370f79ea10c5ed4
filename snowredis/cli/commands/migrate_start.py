"""`migrate start`: plan a migration; add second columns, which triggers fill in every row that is written."""

from __future__ import annotations

import argparse

from snowredis.cli.commands.migrate_proof import proof_lines
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.migration import add_source, next_line, open_migration, plan_lines
from snowredis.cli.options import Parser
from snowredis.cli.output import write

SUMMARY = "plan the change, add second columns, and fill them in rows that are written from now on"
ABOUT = """The proof comes first. If old and new ids are never equal, old ids are kept: only columns with fewer than 64
bits get a second one, and if there is none, no row is rewritten. Undone by rollback."""
EXAMPLES = [
    ("snowredis migrate start postgresql://host/db#orders.id", ""),
    ("snowredis migrate start sqlite:///a.db#a.id --dry-run", "change nothing"),
]


def add_arguments(parser: Parser) -> None:
    add_source(parser)
    parser.add_argument(
        "--to",
        dest="new",
        default="default",
        metavar="LAYOUT",
        help="the layout of the new ids (default: 'default')",
    )
    text = "the layout of the old ids (default: they were counted)"
    parser.add_argument("--from", dest="old", metavar="LAYOUT", help=text)
    parser.add_argument(
        "--ids",
        choices=("auto", "keep", "shift"),
        default="auto",
        help="keep old ids; or shift them, all by one number, to below the new ones (default: keep if the proof holds)",
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="COLUMN=COLUMN",
        help="a foreign key without a constraint: notes.about=orders.id; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def run(args: argparse.Namespace) -> int:
    from snowredis.core.presets import resolve_layout

    old_layout = None if args.old in (None, "auto-increment") else resolve_layout(args.old)
    with open_migration(args.source) as migration:
        plan, proof = migration.plan(
            resolve_layout(args.new), old_layout=old_layout, ids=args.ids, references=args.reference
        )
        write(proof_lines(proof))
        write(plan_lines(plan))
        if not plan.tables and not plan.counted:
            print("nothing has to change in the database: give the applications the new layout")
        elif args.dry_run:
            print("nothing was changed")
        else:
            migration.start(plan)
            write([next_line("backfill", args.source)])
    return ExitCode.OK
