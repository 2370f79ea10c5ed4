"""Shared parts of the commands of `migrate`: the column that a SOURCE names, and what to type next."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode, missing_extra
from snowredis.cli.options import Parser
from snowredis.cli.output import Line, wrapped

if TYPE_CHECKING:
    from snowredis.merge.migrate.migration import Migration
    from snowredis.merge.migrate.plan import MigrationPlan
    from snowredis.merge.sources import Source

SOURCE_HELP = (
    "the column of the ids: URL of the database, and its table and column, as postgresql://host/db#orders.id"
)


def add_source(parser: Parser, *, optional: bool = False) -> None:
    """Add SOURCE."""
    if optional:
        parser.add_argument("source", nargs="?", metavar="SOURCE", help=SOURCE_HELP)
    else:
        parser.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)


def parse_source(text: str) -> Source:
    """Return the column of a database that *text* names."""
    from snowredis.merge.sources import parse_sources

    (source,) = parse_sources([text])
    if source.kind != "database":
        raise CommandError(
            ExitCode.BAD_INPUT,
            f"{source.shown} is a file. Nothing was changed; name a column of a database, as "
            "postgresql://host/db#orders.id.",
        )
    return source


@contextlib.contextmanager
def open_migration(text: str) -> Iterator[Migration]:
    """Open the migration of the column that *text* names; errors of the database end the command with what it said."""
    try:
        from snowredis.merge.databases import database_errors, open_database
        from snowredis.merge.migrate.migration import Migration
    except ImportError as error:
        raise missing_extra(error, "merge") from error

    source = parse_source(text)
    engine = open_database(source.location)
    try:
        with database_errors(engine, "What was done until then is kept"):
            yield Migration(engine, str(source.table), str(source.column), source.schema)
    finally:
        engine.dispose()


def plan_lines(plan: MigrationPlan) -> list[Line]:
    """Return what a migration does."""
    if plan.offset:
        way = f"all old ids get new values, {plan.offset:+} each, below the new ids; second columns beside the old ones"
    elif plan.tables:
        way = "all old ids are kept; second columns of 64 bits beside those that have fewer"
    else:
        way = "all old ids are kept, and all columns have 64 bits: no row is rewritten"
    rows = [("way", way)]
    if plan.tables:
        names = [f"{table}.{column.name}" for table in plan.tables for column in table.columns]
        rows.append(("columns", ", ".join(names)))
    if plan.counted:
        rows.append(
            ("counter", f"goes on until finish, for processes with the old code; up to {plan.last_old:,}")
        )
    return labelled([(label, "", "", text) for label, text in rows])


def labelled(rows: Sequence[tuple[str, str, str, str]]) -> list[Line]:
    """Return lines of a label, a word with a style, and a text; all begin in the same column."""
    lines: list[Line] = []
    for label, word, style, text in rows:
        lines += wrapped([(f"{label:<9}", "dim"), (word, style)], text)
    return lines


def next_line(step: str, source: str) -> Line:
    """Return the command that comes next, without a password."""
    from snowredis.merge.sources import without_password

    return [("next: ", "dim"), (f"snowredis migrate {step} {shlex.quote(without_password(source))}", "note")]
