"""The commands `snowredis merge …` and the group `snowredis migrate`, which the command line finds by entry points."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, missing_extra
from snowredis.cli.options import Command, Parser, confirm, positive
from snowredis.cli.output import Column, Line, print_json, printable, table, wrapped, write
from snowredis.core.presets import resolve_layout
from snowredis.merge import Undecided
from snowredis.merge.progress import Progress
from snowredis.merge.proof import PROOF

if TYPE_CHECKING:
    from snowredis.merge.journal import Run
    from snowredis.merge.pair import Databases
    from snowredis.merge.plan_file import DomainPlan, Pairs, Plan

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


# --- check -----------------------------------------------------------------------------------------------


def _add_check(parser: Parser) -> None:
    add = parser.add_argument
    add("sources", nargs="*", metavar="SOURCE", help="[NAME=]LOCATION[#COLUMN]")
    add("--layout", metavar="LAYOUT", help="name or spec of the layout of the ids (default: 'default')")
    text = "what the process may take at its peak, such as 768M or 4G (default: 1G)"
    add("--memory", type=_bytes, default=_UNITS["G"], metavar="SIZE", help=text)
    add("--json", action="store_true", help="the report as one object; ids are strings in it")
    add("--duplicates", type=Path, metavar="FILE", help="write all repeated ids to a .csv or .parquet file")
    add("--copied", type=Path, metavar="PLAN", help="after the copy: compare all rows of both databases of this plan")
    _add_urls(parser)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not an amount of memory, such as 768M or 4G")
    return int(match[1]) * _UNITS[match[2].upper()]


def _check(args: argparse.Namespace) -> int:
    if bool(args.copied) == bool(args.sources):
        raise CommandError(ExitCode.USAGE, "name sources, or a plan with --copied. Nothing was read.")
    if args.copied:
        return _check_copied(args)
    from snowredis.merge.check import as_lines, check_export_path, check_sources, export_duplicates
    from snowredis.merge.sources import parse_sources
    from snowredis.merge.workspace import Workspace

    sources, layout = parse_sources(args.sources), resolve_layout(args.layout)
    if args.duplicates:
        check_export_path(args.duplicates)
    with interrupted_by_signals(), Progress() as progress, Workspace(args.memory) as workspace:
        result = check_sources(workspace, sources, layout, progress)
        if args.duplicates:
            export_duplicates(workspace, sources, args.duplicates)
    if args.json:
        print_json(result)
    else:
        write(as_lines(result))
    if result.repeated_ids:
        return ExitCode.FOUND_CLASHES
    return ExitCode.FOUND_ERRORS if result.errors else ExitCode.OK


def _check_copied(args: argparse.Namespace) -> int:
    """Compare both databases of a plan after the copy; exit with FOUND_ERRORS if a row is missing."""
    from snowredis.merge.copying import check_applied
    from snowredis.merge.verify import Copied

    with _opened(args, args.copied) as (plan, _, databases, progress):
        check_applied(plan, databases.changed)
        with databases.reading() as sides:
            copied = Copied(plan, databases, sides, progress)
            findings = list(copied.findings())
    for text in findings:
        print(printable(text))
    if findings:
        print(f"\n{len(findings)} findings: rows of {printable(plan.changed)} are missing or differ, as above")
        return ExitCode.FOUND_ERRORS
    print(
        f"all {copied.rows:,} rows of {copied.tables} tables of {printable(plan.changed)} are in "
        f"{printable(plan.kept)}; every counter is above them, and {printable(plan.verdict)}"
    )
    return ExitCode.OK


@contextmanager
def _opened(args: argparse.Namespace, path: Path) -> Iterator[tuple[Plan, Pairs, Databases, Progress]]:
    """Open a plan and connect to its databases."""
    from snowredis.merge.apply import open_databases
    from snowredis.merge.plan_file import open_plan

    with open_plan(path) as (plan, pairs), interrupted_by_signals(), Progress() as progress:
        progress.start("reading tables and foreign keys")
        yield plan, pairs, open_databases(plan, args.kept, args.changed), progress


# --- plan ------------------------------------------------------------------------------------------------


def _add_plan(parser: Parser) -> None:
    add = parser.add_argument
    add("kept", metavar="KEPT", help="URL of the database whose ids stay, as SQLAlchemy takes it")
    add("changed", metavar="CHANGED", help="URL of the database whose ids change where they clash")
    add("--out", metavar="FILE", type=Path, default=Path("merge.plan"), help="the plan (default: merge.plan)")
    add("--layout", metavar="LAYOUT", help="name or spec of the layout that the ids were made with")
    # option, name of the field of Request
    many = [
        ("reference", "references", "CHILD=PARENT", "a foreign key without a constraint: child.column=parent.column, "
         "or also WHERE kind=value for a part of the rows"),
        ("independent", "independent", "COLUMN", "a column that looks like a reference, and is none"),
        ("match", "matched", "TABLE=COLUMNS", "a table with rows that both have, and the COLUMNS that name such "
         "a row; their ids may differ"),
        ("exclude", "excluded", "TABLE", "a table that takes no part"),
        ("id", "ids", "COLUMN", "a column whose values get new ones too, such as one of a composite key"),
        ("counter", "counters", "COLUMN", "its ids are plain numbers, although some are above 2**32"),
        ("schema", "schemas", "NAME", "a schema that takes part (default: the default one; on PostgreSQL: all)"),
    ]  # fmt: skip
    for name, dest, metavar, text in many:
        add(f"--{name}", dest=dest, metavar=metavar, action="append", default=[], help=f"{text}; repeatable")
    add("--with-triggers", action="store_true", help="go on although triggers run that cannot be switched off")


def _plan(args: argparse.Namespace) -> int:
    from snowredis.merge.pair import Request
    from snowredis.merge.planning import make_plan

    if not args.out.parent.is_dir():
        raise CommandError(ExitCode.BAD_INPUT, f"there is no directory {args.out.parent}; nothing was planned.")
    request = Request(**{field.name: getattr(args, field.name) for field in fields(Request)})
    try:
        with interrupted_by_signals(), Progress() as progress:
            plan = make_plan(request, args.out, progress)
    except Undecided as error:
        for text in error.findings:
            print(printable(text))
        text = f"{len(error.findings)} findings, as above. Nothing was planned; decide or correct each."
        raise CommandError(ExitCode.MERGE_REFUSED, text) from None
    write(_lines_of(plan))
    path = shlex.quote(str(args.out))
    print(f"\nthe plan is in {path}; next: snowredis merge apply {path} --dry-run")
    return ExitCode.OK


def _lines_of(plan: Plan) -> list[Line]:
    """Return what a plan says, for a person."""
    lines: list[Line] = [
        [("ids stay in    ", "dim"), (printable(plan.kept), "")],
        [("ids change in  ", "dim"), (printable(plan.changed), "")],
        [],
    ]
    columns = [Column("ids of", shrinks=True), *(Column(name, right=True) for name in ("kept", "changed", "clash"))]
    rows = [
        (
            printable(domain.name),
            f"{domain.kept:,}",
            f"{domain.changed:,}",
            (f"{domain.clashes:,}", "warn" if domain.clashes and domain.kind != "match" else ""),
            f"{domain.renamed:,}",
            _how(domain),
        )
        for domain in plan.domains
    ]
    lines += table([*columns, Column("new ids", right=True), Column("how", shrinks=True)], rows)
    for domain in plan.renamed:
        of = domain.domain
        others = [*map(str, of.references), *map(str, of.keys[1:]), *map(str, of.partials)]
        if others:
            lines += wrapped([(f"  {printable(domain.name)} is also in ", "dim")], printable(", ".join(others)))
    for note in plan.notes:
        lines += wrapped([("note: ", "warn")], printable(note))
    return lines


def _how(domain: DomainPlan) -> str:
    if domain.kind == "counter":
        return f"+ {domain.offset:,}"
    if domain.kind == "layout":
        lanes = f" of {len(domain.lanes)}" if len(domain.lanes) > 1 else ""
        return f"same time, an unused worker id{lanes}"
    return "the ids of the same rows in the other" if domain.kind == "match" else "stay: none clashes"


# --- apply, undo, abandon --------------------------------------------------------------------------------


def _add_changes(parser: Parser) -> None:
    parser.add_yes()
    text = "about how many values one transaction changes (default: 2000000); one id may have more references"
    parser.add_argument("--batch-rows", type=positive, default=2_000_000, metavar="N", help=text)


def _add_urls(parser: Parser) -> None:
    """Add the URLs of a plan's databases."""
    text = "of the database whose ids stay (default: as in the plan)"
    parser.add_argument("--kept", metavar="URL", help=text)
    text = "of the database whose ids change; plans hold no passwords"
    parser.add_argument("--changed", metavar="URL", help=text)


def _add_apply(parser: Parser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="the file that `snowredis merge plan` wrote")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and stop")
    _add_urls(parser)
    _add_changes(parser)


def _apply(args: argparse.Namespace) -> int:
    from snowredis.merge.apply import apply_plan
    from snowredis.merge.journal import Journal

    with _opened(args, args.plan) as (plan, pairs, databases, progress):
        begun = Journal(databases.changed).read(plan.id)
        progress.clear()
        write(_lines_of(plan))
        if begun is not None:
            print(
                f"begun    by an earlier process ({begun.state}), with {begun.changed:,} values changed; it continues"
            )
        if args.dry_run:
            print("\nnothing was changed")
            return ExitCode.OK
        confirm(args, "change this?")
        run = apply_plan(plan, pairs, databases, batch_rows=args.batch_rows, progress=progress)
        progress.clear()
        _print_run(run, "new", plan.verdict)
        print(f"old and new ids: snowredis_merge_map in {plan.changed}")
        print(f"next: snowredis merge copy {shlex.quote(str(args.plan))} --run")
    return ExitCode.OK


def _print_run(run: Run, kind: str, verdict: str) -> None:
    if not run.changed:
        print("\nno id was changed")
        return
    rows = sum(count for count, _ in run.sums.values())
    print(
        f"\n{run.ids:,} ids have {kind} values, in {run.changed:,} places; the checksums of {rows:,} rows in "
        f"{len(run.sums)} tables are as before but for the ids, and {printable(verdict)}"
    )


def _add_revert(parser: Parser) -> None:
    parser.add_argument("changed", metavar="URL", help="of the database whose ids were changed")
    _add_changes(parser)


def _reverting(name: str, text: str, *, finished: bool) -> Command:
    """Return a command that takes a merge back."""

    def run(args: argparse.Namespace) -> int:
        from snowredis.merge.apply import revert

        confirm(args, "change this?")
        with interrupted_by_signals(), Progress() as progress:
            done = revert(args.changed, finished=finished, batch_rows=args.batch_rows, progress=progress)
        _print_run(done, "their old", "every foreign key of the catalog leads to a row")
        return ExitCode.OK

    more = "Needs no plan: the database has the map. If it is stopped, the same command continues."
    examples = [(f"snowredis merge {name} postgresql://db2/game", "asks first")]
    return Command(name, text, more, examples, _add_revert, run)


# --- copy ------------------------------------------------------------------------------------------------


def _add_copy(parser: Parser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a plan that was applied")
    parser.add_argument("--run", dest="runs", action="store_true", help="run the commands")
    _add_urls(parser)
    parser.add_yes()


def _copy(args: argparse.Namespace) -> int:
    from snowredis.merge.copying import as_script, copy_commands, run_copy

    with _opened(args, args.plan) as (plan, _, databases, progress):
        commands = copy_commands(plan, databases)
        progress.clear()
        if not args.runs:
            print(as_script(commands), end="")
            return ExitCode.OK
        confirm(args, f"copy all rows of {plan.changed} into {plan.kept}?")
        progress.start("copying")
        run_copy(commands, plan, databases, progress)
    print(f"the rows were copied; next: snowredis merge check --copied {shlex.quote(str(args.plan))}")
    return ExitCode.OK


# --- the groups ------------------------------------------------------------------------------------------


def _needing_extra(command: Command) -> Command:
    """Return *command*, which names the extra if a package of it is not installed."""

    def run(args: argparse.Namespace) -> int | None:
        try:
            return command.run(args)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("snowredis"):
                raise
            raise missing_extra(error, "merge") from error

    return replace(command, run=run)


_MERGE_COMMANDS = [
    Command(
        "check",
        "say which ids exist twice in files and tables, and which cannot be right",
        """SOURCE is [NAME=]LOCATION[#COLUMN]: a file (csv, tsv or txt, each also with .gz, or parquet), or the
URL of a database, such as postgresql://host/db#table.column. Exits with 10 if ids exist twice, with 9 if there are
other ids that cannot be right, and with 0 if all is well.""",
        [
            ("snowredis merge check a.parquet#id b.csv#player_id", "two files"),
            ("snowredis merge check mysql://db1/game#players.id b.csv#id", "a table, a file"),
            ("snowredis merge check a.csv#id b.csv#id --json", "for programs"),
            ("snowredis merge check --copied merge.plan", "after a copy"),
        ],
        _add_check,
        _check,
    ),
    Command(
        "plan",
        "decide the new ids of a merge, and which rows they are in",
        """Two databases with the same tables are to become one. The ids of KEPT stay. Ids of CHANGED that clash get
new ones, in every column that refers to them. Reads both databases, and writes a plan for `snowredis merge apply`. No
process should write to CHANGED from now on.""",
        [
            ("snowredis merge plan URL URL", "ids of counters"),
            ("snowredis merge plan URL URL --layout game", "ids of a preset"),
            ("snowredis merge plan URL URL --reference a.b=c.id", "no constraint"),
            ("snowredis merge plan URL URL --match tag=name", "same rows, other ids"),
        ],
        _add_plan,
        _plan,
    ),
    Command(
        "apply",
        "change the ids of a plan, with all that refers to them",
        """First says what will happen, then asks. No process may write to the database whose ids change; make a backup
of it. Every commit leaves a consistent database. If it is stopped, in whatever way, the same command continues.""",
        [
            ("snowredis merge apply merge.plan --dry-run", "what would happen"),
            ("snowredis merge apply merge.plan", "change the ids; asks first"),
        ],
        _add_apply,
        _apply,
    ),
    Command(
        "copy",
        "print the commands that copy the rows, or run them",
        """One transaction for each database, of the databases' own programs: psql, mariadb-dump and mariadb, or SQL for
sqlite3. Columns go by name, parents come first, triggers are off. A row whose key is there already ends the copy, and
nothing is copied. Passwords: the programs' own files, or CHANGED_PASSWORD and KEPT_PASSWORD in the environment.""",
        [
            ("snowredis merge copy merge.plan", "print the commands"),
            ("snowredis merge copy merge.plan --run", "run them; asks first"),
        ],
        _add_copy,
        _copy,
    ),
    _reverting("undo", "give all ids of a finished merge their old values again", finished=True),
    _reverting("abandon", "take back a merge that was begun and is not finished", finished=False),
]
MERGE = Command(
    "merge",
    "find ids that clash between shards, and change them",
    "Needs the extra merge: pip install 'snowredis[merge]'.",
    commands=list(map(_needing_extra, _MERGE_COMMANDS)),
)
MIGRATE = Command(
    "migrate",
    "prove that new ids never equal those that a column has",
    "",
    commands=[_needing_extra(PROOF)],
)
