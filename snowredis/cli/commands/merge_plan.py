"""`merge plan`: decide the new ids of a merge."""

from __future__ import annotations

import argparse
from pathlib import Path

from snowredis.cli.exit_codes import CommandError, ExitCode, missing_extra
from snowredis.cli.merge_lines import StepLine, lines_of_plan
from snowredis.cli.options import Parser
from snowredis.cli.output import write

SUMMARY = "decide the new ids of a merge, and which rows they are in"
ABOUT = """Two databases with the same tables are to become one. The ids of KEPT stay; ids of CHANGED that clash get
new ones. An id of a layout (--layout) keeps its time, and gets a worker id that neither database uses; numbers of a
counter all move by one offset. Foreign keys are found in the database; name those that have no constraint with
--reference.

Reads both databases, and writes a plan for `snowredis merge apply`; changes nothing else. Nobody should write to
CHANGED from now on."""
EXAMPLES = [
    ("snowredis merge plan URL URL", "ids of counters"),
    ("snowredis merge plan URL URL --layout game", "ids of a preset"),
    ("snowredis merge plan URL URL --reference a.b=c.id", "no constraint"),
    ("snowredis merge plan URL URL --shared country", "rows that both have"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "kept", metavar="KEPT", help="URL of the database whose ids stay, as SQLAlchemy takes it"
    )
    parser.add_argument(
        "changed", metavar="CHANGED", help="URL of the database whose ids change where they clash"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("merge.plan"), help="the plan (default: merge.plan)"
    )
    parser.add_argument(
        "--layout", metavar="LAYOUT", help="name or spec of the layout that the ids were made with"
    )
    many = [
        ("reference", "CHILD=PARENT", "a foreign key without a constraint: child.column=parent.column"),
        ("shared", "TABLE", "a table whose rows mean the same in both: its ids stay"),
        ("exclude", "TABLE", "a table that takes no part"),
        ("id", "COLUMN", "a column whose values get new ones too, such as one of a composite key"),
        ("counter", "COLUMN", "its ids are plain numbers, although some are above 2**32"),
        ("schema", "NAME", "a schema that takes part (default: the default one; on PostgreSQL: all)"),
    ]
    for name, metavar, text in many:
        parser.add_argument(
            f"--{name}", metavar=metavar, action="append", default=[], help=f"{text}; repeatable"
        )
    parser.add_argument(
        "--workers",
        metavar="FIRST-LAST",
        type=_workers,
        help="worker ids that new ids may use (default: the highest that neither database uses)",
    )


def _workers(text: str) -> range:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash) and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of worker ids, such as 1000-1023")
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return numbers


def run(args: argparse.Namespace) -> int:
    try:
        from snowredis.merge.plan.make import Request, make_plan
    except ImportError as error:
        raise missing_extra(error, "merge") from error

    if not args.out.parent.is_dir():
        raise CommandError(
            ExitCode.BAD_INPUT, f"there is no directory {args.out.parent}; nothing was planned."
        )
    request = Request(
        kept=args.kept,
        changed=args.changed,
        layout=args.layout,
        schemas=args.schema,
        references=args.reference,
        ids=args.id,
        excluded=args.exclude,
        shared=args.shared,
        counters=args.counter,
        workers=args.workers,
    )
    with StepLine() as progress:
        plan = make_plan(request, args.out, progress.report)
    write(lines_of_plan(plan))
    print(f"\nthe plan is in {args.out}; next: snowredis merge apply {args.out} --dry-run")
    return ExitCode.OK
