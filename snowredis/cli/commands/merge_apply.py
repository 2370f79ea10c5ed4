"""`merge apply`: carry out the plan of a merge."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, missing_extra
from snowredis.cli.merge_lines import StepLine, lines_of_dry_run, lines_of_plan
from snowredis.cli.options import Parser, positive
from snowredis.cli.output import write

if TYPE_CHECKING:
    from snowredis.merge.apply.run import Databases
    from snowredis.merge.plan.plan_file import Plan, PlanFile

SUMMARY = "change the ids of a plan, with all that refers to them, and copy the rows"
ABOUT = """First says what will happen, then asks. Nobody may write to the database whose ids change; make a backup
of it.

Works in batches; every commit leaves a consistent database. If it is stopped, in whatever way, the same command
continues. At the end it compares checksums of all rows, and looks for references that lead nowhere. Which id a row
had before stays in the table snowredis_merge_map."""
EXAMPLES = [
    ("snowredis merge apply merge.plan --dry-run", "what would happen"),
    ("snowredis merge apply merge.plan", "change the ids; asks first"),
    ("snowredis merge apply merge.plan --copy --yes", "copies all rows; does not ask"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="the file that `snowredis merge plan` wrote")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and stop")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="then copy all rows into the database whose ids stay, and compare them",
    )
    parser.add_argument(
        "--batch-rows",
        type=positive,
        default=10_000,
        metavar="N",
        help="values that one transaction changes at most (default: 10000); one id may have more references",
    )
    parser.add_argument(
        "--kept", metavar="URL", help="of the database whose ids stay (default: as in the plan)"
    )
    parser.add_argument(
        "--changed", metavar="URL", help="of the database whose ids change; plans hold no passwords"
    )
    parser.add_argument(
        "--with-triggers", action="store_true", help="go on although triggers run that cannot be switched off"
    )


def run(args: argparse.Namespace) -> int:
    try:
        from snowredis.merge.apply.run import open_databases
        from snowredis.merge.journal import Journal
        from snowredis.merge.plan.plan_file import PlanFile
    except ImportError as error:
        raise missing_extra(error, "merge") from error

    plan, file = PlanFile.open(args.plan)
    with ExitStack() as stack:
        stack.enter_context(file)
        stack.enter_context(interrupted_by_signals())
        progress = stack.enter_context(StepLine())
        progress.report("reading tables and foreign keys")
        databases = open_databases(plan, args.kept, args.changed)
        stack.callback(databases.close)
        begun = Journal(databases.changed, plan).read()
        progress.clear()
        write(lines_of_plan(plan))
        write(lines_of_dry_run(plan, databases, args.batch_rows, begun, copy=args.copy))
        if args.dry_run:
            print("\nnothing was changed")
            return ExitCode.OK
        if not args.yes and not _agreed():
            print("nothing was changed")
            return ExitCode.ERROR
        _apply(args, plan, file, databases, progress)
    return ExitCode.OK


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CommandError(
            ExitCode.USAGE,
            "standard input is not a terminal, so nobody can confirm the changes; nothing was changed. "
            "Confirm with --yes.",
        )
    try:
        return input("\nchange this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _apply(
    args: argparse.Namespace, plan: Plan, file: PlanFile, databases: Databases, progress: StepLine
) -> None:
    from snowredis.merge.apply.copy_rows import copy_rows
    from snowredis.merge.apply.run import apply_plan

    progress.start(sum(table.rewritten for table in plan.tables))
    outcome = apply_plan(
        plan,
        file,
        databases,
        batch_rows=args.batch_rows,
        with_triggers=args.with_triggers,
        report=progress.report,
    )
    progress.clear()
    rows = sum(count for count, _ in outcome.rows.values())
    print(
        f"\n{outcome.ids:,} ids have new values, in {outcome.values:,} places; the checksums of {rows:,} rows in "
        f"{len(outcome.rows)} tables are as before but for the ids, and every reference leads to a row"
    )
    print(f"old and new ids: snowredis_merge_map in {plan.changed}")
    if args.copy:
        progress.start(sum(table.rows for table in plan.tables))
        copied = copy_rows(plan, databases, batch_rows=args.batch_rows, report=progress.report)
        progress.clear()
        print(f"{copied:,} rows were copied into {plan.kept}, and are equal there")
