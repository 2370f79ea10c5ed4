"""The copy of the rows of the database that changed into the one whose ids stay: its commands, and their run.

They are the databases' own programs: psql with COPY, mariadb-dump, sqlite3. Each side has one transaction. The COMMIT
is no part of what the programs exchange: the process that reports sends it, after it saw that everything else
succeeded, so whatever dies before that, nothing is copied. Columns go by name. Parents come first, or their foreign
keys are checked at the end. Triggers are off. No row is skipped or replaced: a key that is there already ends the copy.
Of a matched table, rows go through a temporary table, and those that the server finds in the other one stay away.
Sequences are never set to the other database's numbers.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.cli.exit_codes import uninterrupted
from snowredis.merge import MergeError
from snowredis.merge.databases import LOCAL_SETTINGS, MYSQL_SETTINGS, reading, text_literal, url_of
from snowredis.merge.journal import Journal
from snowredis.merge.obstacles import check_copyable
from snowredis.merge.pair import Databases
from snowredis.merge.plan_file import Plan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import TableName
from snowredis.merge.support import Support, support_of
from snowredis.merge.verify import Copied, copied_columns

_STAGE = "snowredis_copy"
_LARGE_ROWS = "--max-allowed-packet=1G"
_DUMP = (
    "--no-create-info --complete-insert --compact --skip-triggers --hex-blob --tz-utc --single-transaction "
    f"{_LARGE_ROWS}"
)
_READY, _COMMIT = b"snowredis: all rows", "COMMIT;"
# the first command that fails ends the script, before the COMMIT
_STRICT = "set -euo pipefail\n"
_CHUNK_BYTES = 1 << 20


class _Rows(NamedTuple):
    """A table whose rows are copied, by its columns; *matched*: without those that are the same in these."""

    name: TableName
    columns: list[str]
    matched: Sequence[str]


class Commands(NamedTuple):
    """Commands of bash: *source* prints statements with all rows, and *target* reads them; only the COMMIT lacks."""

    source: str
    target: str


def check_applied(plan: Plan, changed: sa.Engine) -> None:
    """Refuse to copy before all ids are new; MergeError."""
    run = Journal(changed).read(plan.id)
    if run is None or run.state != "done":
        raise MergeError(
            f"plan {plan.id} is not applied in {url_of(changed)}. Nothing was copied; first: snowredis merge apply PLAN"
        )


def copy_commands(plan: Plan, databases: Databases) -> Commands:
    """Return the commands: for bash, or for SQLite one script of SQL, for the database whose ids stay.

    Raises:
        MergeError: the plan is not applied.
    """
    check_applied(plan, databases.changed)
    ordered, late = databases.kept_schema.parents_first(list(databases.changed_schema.tables))
    kinds = {"postgresql": _postgresql, "sqlite": _sqlite}
    rows = [
        _Rows(name, copied_columns(databases.changed_schema.tables[name]), plan.matched.get(str(name), ()))
        for name in ordered
    ]
    with databases.reading() as sides:
        check_copyable(sides)
        support = support_of(databases.kept)
        before, after = support.relaxing(sides[0][0], ordered, late)
        # counters only move up: the next row must not get the id of a row that was copied
        after += dict.fromkeys(counter.statement for counter in support.counters(*sides[0]) if counter.columns)
    return kinds.get(support.kind, _mysql)(databases, support, rows, before, after)


def as_script(commands: Commands) -> str:
    """Return the commands as one script, for a person to run."""
    if not commands.target:
        return f"{commands.source}{_COMMIT}\n"
    return f"{_STRICT}{{\n{commands.source}echo '{_COMMIT}'\n}} |\n  {commands.target}\n"


def run_copy(commands: Commands, plan: Plan, databases: Databases, progress: Progress) -> None:
    """Run the commands; on SQLite, the result is compared before the commit.

    Raises:
        MergeError: they failed; the message says whether rows were copied.
    """
    if databases.kept.dialect.name == "sqlite":
        _run_sqlite(commands.source, plan, databases, progress)
        return
    passwords = {"KEPT": databases.kept.url.password, "CHANGED": databases.changed.url.password}
    given = {f"{side}_PASSWORD": str(text) for side, text in passwords.items() if text}
    with tempfile.TemporaryFile() as said:
        options: dict[str, Any] = {"env": {**os.environ, **given}, "stderr": said, "stdout": subprocess.PIPE}
        target: Any
        source: Any
        committed = False
        with (
            contextlib.suppress(BrokenPipeError),
            subprocess.Popen(["bash", "-c", commands.target], stdin=subprocess.PIPE, **options) as target,
            subprocess.Popen(["bash", "-c", _STRICT + commands.source], stdin=subprocess.DEVNULL, **options) as source,
        ):
            # without a COMMIT, the target's transaction ends with its input
            shutil.copyfileobj(source.stdout, target.stdin, _CHUNK_BYTES)
            target.stdin.flush()
            if not source.wait() and any(_READY in line for line in target.stdout):
                with uninterrupted():
                    committed = True
                    target.communicate(f"{_COMMIT}\n".encode())
        if committed and not target.returncode:
            return
        said.seek(0)
        reason = " ".join(said.read().decode(errors="replace").split())[-1000:].rstrip(".")
    if committed:
        raise MergeError(
            f"the copy failed at its commit: {reason}. The rows may be there or not; snowredis merge check --copied "
            "says which."
        )
    raise MergeError(f"the copy failed: {reason}. Nothing was copied; correct that, and run the same command again.")


def _run_sqlite(script: str, plan: Plan, databases: Databases, progress: Progress) -> None:
    raw: Any = databases.kept.raw_connection().dbapi_connection
    # the transaction of the script stays open for the comparison
    engine = sa.create_engine("sqlite://", creator=lambda: raw, poolclass=sa.StaticPool)
    try:
        with engine.connect() as kept, reading(databases.changed) as changed:
            raw.executescript(script)
            sides = (kept, databases.kept_schema), (changed, databases.changed_schema)
            findings = list(Copied(plan, databases, sides, progress).findings())
            if findings:
                raise MergeError(f"{'; '.join(findings)}. Nothing was copied; correct that, and run the command again.")
            raw.execute("COMMIT")
    except sqlite3.Error as error:
        raise MergeError(f"the copy failed: {error}. Nothing was copied; correct that, and run it again.") from error
    finally:
        raw.close()


def _insert(support: Support, rows: _Rows, name: TableName, other: str) -> str:
    """Return the statement that inserts the rows of *other* into *name*, without those that match one of its rows."""
    mine, names = support.name(name), ", ".join(map(support.quote, rows.columns))
    always = "OVERRIDING SYSTEM VALUE " if support.kind == "postgresql" else ""
    # a key of SQLite may have another ON CONFLICT
    insert = "INSERT OR ABORT" if support.kind == "sqlite" else "INSERT"
    text = f"{insert} INTO {mine} ({names}) {always}SELECT {names} FROM {other} AS theirs"
    if rows.matched:
        # SQLite compares by the collation of the left side
        equal = " AND ".join(f"mine.{support.quote(c)} = theirs.{support.quote(c)}" for c in rows.matched)
        text += f" WHERE NOT EXISTS (SELECT 1 FROM {mine} AS mine WHERE {equal})"
    return f"{text};"


def _password(side: str, variable: str) -> str:
    return f'{variable}="${{{side}_PASSWORD-}}"'


# --- PostgreSQL ------------------------------------------------------------------------------------------


def _postgresql(both: Databases, support: Support, rows: list[_Rows], before: list[str], after: list[str]) -> Commands:
    programs = [
        f"PGCLIENTENCODING=UTF8 {_password(side, 'PGPASSWORD')} psql --no-psqlrc --quiet --tuples-only --no-align "
        "--set ON_ERROR_STOP=1 "
        + shlex.quote(engine.url._replace(password=None).set(drivername="postgresql").render_as_string())
        for side, engine in (("CHANGED", both.changed), ("KEPT", both.kept))
    ]
    lines = [f"{programs[0]} <<'SQL'", "BEGIN ISOLATION LEVEL REPEATABLE READ;"]
    lines += (f"{statement};" for statement in LOCAL_SETTINGS)
    lines += (_echo(f"{statement};") for statement in ["BEGIN", *LOCAL_SETTINGS, *before])
    for of in rows:
        names, target = ", ".join(map(support.quote, of.columns)), support.name(of.name)
        if of.matched:
            lines.append(
                _echo(f"CREATE TEMPORARY TABLE {_STAGE} ON COMMIT DROP AS SELECT {names} FROM {target} WITH NO DATA;")
            )
        lines.append(_echo(f"COPY {_STAGE if of.matched else target} ({names}) FROM STDIN;"))
        lines += (f"COPY (SELECT {names} FROM {target}) TO STDOUT;", _echo("\\."))
        if of.matched:
            lines += (_echo(_insert(support, of, of.name, _STAGE)), _echo(f"DROP TABLE {_STAGE};"))
    lines += (_echo(f"{statement};") for statement in after)
    lines += (_echo("\\o"), _echo(f"SELECT '{_READY.decode()}';"), "COMMIT;", "SQL", "")
    return Commands("\n".join(lines), f"{programs[1]} --output /dev/null")


def _echo(text: str) -> str:
    """Return the command of psql that prints a line for the other psql."""
    return "\\echo '" + text.replace("\\", "\\\\").replace("'", "''") + "'"


# --- MariaDB and MySQL -----------------------------------------------------------------------------------


def _mysql(both: Databases, support: Support, rows: list[_Rows], before: list[str], _after: list[str]) -> Commands:
    own = both.changed.dialect.is_mariadb  # type: ignore[attr-defined]
    dump, client = ("mariadb-dump", "mariadb") if own else ("mysqldump --set-gtid-purged=OFF", "mysql")
    source = f"{_password('CHANGED', 'MYSQL_PWD')} {dump} {_mysql_options(both.changed.url)} {_DUMP}"
    target = f"{_password('KEPT', 'MYSQL_PWD')} {client} --unbuffered {_LARGE_ROWS} {_mysql_options(both.kept.url)}"
    names = {of.name.schema: of.name.schema or both.kept.url.database for of in rows}

    def dumped(schema: str | None, tables: Sequence[TableName]) -> str:
        return shlex.join([schema or str(both.changed.url.database), *(table.table for table in tables)])

    def say(*statements: str) -> list[str]:
        return [f"printf '%s;\\n' {shlex.quote(statement)}" for statement in statements]

    parts = say("SET NAMES utf8mb4", MYSQL_SETTINGS, "SET SESSION unique_checks = 1", *before)
    if any(column.computed is not None for of in rows for column in both.changed_schema.tables[of.name].c):
        # mariadb-dump writes values of computed columns, which the server ignores, or refuses in strict mode
        parts += say("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
    stages = [(of, f"{_STAGE}_{at}") for at, of in enumerate(of for of in rows if of.matched)]
    for (name, *_), stage in stages:
        # it hides the table of this name until it has another one
        mine, use = support.name(TableName(None, name.table)), f"USE {support.quote(str(names[name.schema]))}"
        parts += say(use, f"CREATE TEMPORARY TABLE {stage} LIKE {mine}", f"CREATE TEMPORARY TABLE {mine} LIKE {stage}")
        parts.append(f"{source} {dumped(name.schema, [name])}")
        parts += say(f"DROP TEMPORARY TABLE {stage}", f"ALTER TABLE {mine} RENAME TO {stage}")
    parts += say("START TRANSACTION")
    for schema, database in names.items():
        if tables := [of.name for of in rows if of.name.schema == schema and not of.matched]:
            parts += [*say(f"USE {support.quote(str(database))}"), f"{source} {dumped(schema, tables)}"]
    for of, stage in stages:
        full = TableName(names[of.name.schema], of.name.table)
        parts += say(_insert(support, of, full, support.name(TableName(full.schema, stage))).rstrip(";"))
    parts += say(f"SELECT '{_READY.decode()}'")
    return Commands("\n".join([*parts, ""]), f"{target} {shlex.quote(str(both.kept.url.database))}")


def _mysql_options(url: sa.URL) -> str:
    options = {"user": url.username, "host": url.host, "port": url.port, "socket": url.query.get("unix_socket")}
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    return shlex.join([*given, "--default-character-set=utf8mb4"])


# --- SQLite ----------------------------------------------------------------------------------------------


def _sqlite(both: Databases, support: Support, rows: list[_Rows], before: list[str], after: list[str]) -> Commands:
    path = text_literal(str(both.changed.url.database))
    lines = ["PRAGMA foreign_keys = OFF;", f"ATTACH {path} AS theirs;", "BEGIN;"]
    lines += (f"{statement};" for statement in before)
    for of in rows:
        other = support.name(TableName("theirs", of.name.table))
        lines.append(_insert(support, of, TableName("main", of.name.table), other))
    lines += (f"{statement};" for statement in after)
    return Commands("\n".join([*lines, ""]), "")
