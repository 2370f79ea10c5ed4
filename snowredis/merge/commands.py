"""The commands `snowredis merge …` and the group `snowredis migrate`, which the command line loads by their names."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, missing_extra
from snowredis.cli.options import Command, Parser
from snowredis.cli.output import printable, show, wrapped, write
from snowredis.core.presets import resolve_layout
from snowredis.merge import MergeError
from snowredis.merge.proof import PROOF

if TYPE_CHECKING:
    from snowredis.merge.databases import Progress


@contextlib.contextmanager
def _running() -> Iterator[Progress]:
    """Yield the progress of a command that signals interrupt; name the extra if a package of it is not installed."""
    try:
        from snowredis.merge.databases import Progress

        with interrupted_by_signals(), Progress() as progress:
            yield progress
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("snowredis"):
            raise
        raise missing_extra(error, "merge") from error


# --- check -----------------------------------------------------------------------------------------------


def _add_check(parser: Parser) -> None:
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="[NAME=]LOCATION[#COLUMN]")
    add("--layout", metavar="LAYOUT", help="name or spec of the layout of the ids (default: 'default')")
    add("--duplicates", type=Path, metavar="FILE", help="write all repeated ids to this file, as CSV")


def _check(args: argparse.Namespace) -> int:
    """Say which ids exist twice in files and tables, and which cannot be right.

    SOURCE is [NAME=]LOCATION[#COLUMN]: a file (csv, tsv or txt, each also with .gz, or parquet), or the URL of a
    database, such as postgresql://host/db#table.column. Exits with 10 if ids exist twice, with 9 if there are other ids
    that cannot be right, and with 0 if all is well.

    examples:
      snowredis merge check a.parquet#id b.csv#player_id          two files
      snowredis merge check mysql://db1/game#players.id b.csv#id  a table, a file
      snowredis merge check a.csv#id b.csv#id --json              for programs
    """
    with _running() as progress:
        from snowredis.merge.check import check_sources, export_duplicates, report, unfit_for_duplicates
        from snowredis.merge.sources import Workspace, parse_sources

        sources, layout, path = parse_sources(args.sources), resolve_layout(args.layout), args.duplicates
        if path and (wrong := unfit_for_duplicates(path)):
            raise CommandError(ExitCode.BAD_INPUT, f"{wrong}. Nothing was read; name another file with --duplicates.")
        with Workspace() as workspace:
            result = check_sources(workspace, sources, layout, progress)
            if path:
                export_duplicates(workspace, path)
    if args.json:
        show(result, "", as_json=True)
    else:
        for word, text in report(result):
            write(wrapped(f"{word:<8}", printable(text)))
    if result.repeated_ids:
        return ExitCode.FOUND_CLASHES
    return ExitCode.FOUND_ERRORS if result.has_errors else ExitCode.OK


# --- draft and run ---------------------------------------------------------------------------------------


def _add_databases(parser: Parser) -> None:
    add = parser.add_argument
    add("first", metavar="FIRST", help="URL of the database that the rows come into, as SQLAlchemy takes it")
    add("second", metavar="SECOND", help="URL of the database that is only read")


def _draft(args: argparse.Namespace) -> int:
    """Write a map of a merge: every table and column once, with a guess and its reason.

    Reads both databases, and changes nothing. Edit the map: it says what happens to each column, and `ask` where that
    is open.

    examples:
      snowredis merge draft URL URL > game.map
    """
    with _running() as progress:
        from snowredis.merge.dialects import two_databases
        from snowredis.merge.draft import Draft
        from snowredis.merge.evidence import Evidence
        from snowredis.merge.map_file import as_text, undecided

        with two_databases(args.first, args.second) as databases:
            draft = Draft(Evidence(databases, progress))
            the_map = draft.map()
    count = undecided(the_map)
    print(as_text(the_map, draft.notes, (*draft.about, f"{count} undecided")), end="")
    print(f"{len(the_map.tables)} tables, {count} undecided; next: read and edit every line", file=sys.stderr)
    return ExitCode.OK


def _add_run(parser: Parser) -> None:
    parser.add_argument("map", metavar="MAP", type=Path, help="the file that `snowredis merge draft` wrote, reviewed")
    _add_databases(parser)
    parser.add_argument("--dry-run", action="store_true", help="do everything, say it, and roll it back")


def _run(args: argparse.Namespace) -> int:
    """Merge the second database into the first, by a reviewed map.

    Make a backup of the first database. Everything is one transaction of it, which is proved before the COMMIT; the
    second database is only read. What is not known to be right is refused before the first row, all of it at once.

    examples:
      snowredis merge run game.map URL URL --dry-run  what would happen
      snowredis merge run game.map URL URL            merge
    """
    pairs = Path(f"{args.map}.pairs.csv")
    try:
        with _running() as progress:
            from snowredis.merge.run import merge

            result = merge(args.map, (args.first, args.second), progress, commits=not args.dry_run, pairs=pairs)
    except MergeError as error:
        for text in error.findings:
            print(printable(text))
        raise CommandError(ExitCode.MERGE_REFUSED, error.message) if error.findings else error from None
    for word, text in result.verdict:
        write(wrapped(f"{word}: ", printable(text)))
    return ExitCode.OK


# --- the groups ------------------------------------------------------------------------------------------


MERGE = Command(
    "merge",
    about="""Find ids that clash between databases, and merge two of them.

Needs the extra merge: pip install 'snowredis[merge]'.""",
    commands=[
        Command("check", _check, _add_check, json="the report as one object; ids are strings in it"),
        Command("draft", _draft, _add_databases),
        Command("run", _run, _add_run),
    ],
)
MIGRATE = Command("migrate", about="Prove that new ids never equal those that a column has.", commands=[PROOF])
