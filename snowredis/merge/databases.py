"""Connections to databases, with the same settings in every session, queries of their catalogs, and their errors."""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, SAWarning, SQLAlchemyError, StatementError

from snowredis.cli.output import fitted, is_terminal, printable
from snowredis.core.values import duration
from snowredis.errors import shown
from snowredis.merge import MergeError, unreadable

_SUPPORTED = ("sqlite", "postgresql", "mysql", "mariadb")
# the driver of a URL that names none
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
# how long a statement waits for a lock of another session before it gives up
LOCK_WAIT_S = 15
# what to do, by what the error of a database says
_ADVICE = {
    "lock (timeout|wait)|locked|deadlock": "another process uses the database: stop the application that writes to it",
    "denied|must be owner|permission|authentication|readonly": "check the user, the password, and that this user owns "
    "the tables",
    "connect|refused|gone away|terminat|no such file|resolve": "check that the server runs, and the host, port and "
    "database of the URL",
}
# rows that are fetched at once
PAGE = 2000
STREAMED = {"stream_results": True, "yield_per": 20_000}
# the same text of a time or a float on every server, no hidden rows, no time limits of the server's. They are those of
# a transaction: behind a pooler, the session is the application's, too
_LOCAL_SETTINGS = (
    *("SET LOCAL TimeZone = 'UTC'", "SET LOCAL DateStyle = 'ISO, YMD'", "SET LOCAL row_security = off"),
    *("SET LOCAL IntervalStyle = 'postgres'", "SET LOCAL extra_float_digits = 1", "SET LOCAL bytea_output = 'hex'"),
    *("SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0"),
    f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'",
)
_MYSQL_SETTINGS = (
    "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO', sql_safe_updates = 0, "
    f"innodb_lock_wait_timeout = {LOCK_WAIT_S}, lock_wait_timeout = {LOCK_WAIT_S}, group_concat_max_len = {1 << 24}, "
    "net_write_timeout = 3600, net_read_timeout = 3600, tx_isolation = 'REPEATABLE-READ' "
    # MariaDB alone reads this: tables are joined by hashes, and those of 32 MiB of keys in one pass
    f"/*M! , join_cache_level = 4, join_buffer_size = {1 << 25}, join_buffer_space_limit = {1 << 28} */"
)
# pairs of an old value and a new one, which statements look up; PostgreSQL has them in the statement
PAIRS = "snowredis_pairs"
_TEXT = "VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_MYSQL_PAIRS = (
    f"CREATE TEMPORARY TABLE {PAIRS} (rule_ INT NOT NULL, old_ {_TEXT}, new_ {_TEXT}, PRIMARY KEY (rule_, old_)) "
    "ENGINE = InnoDB"
)
_SQLITE_PAIRS = f"CREATE TEMP TABLE {PAIRS} (rule_ INT, old_ TEXT, new_ TEXT, PRIMARY KEY (rule_, old_))"


def url_of(engine: sa.Engine) -> str:
    """Return the URL of *engine*, without a password."""
    return engine.url._replace(password=None).render_as_string()


def with_driver(url: sa.URL) -> sa.URL:
    """Return *url* with the driver of its kind of database, if it names none."""
    driver = _DRIVERS.get(url.drivername)
    if driver == "pymysql" and "charset" not in url.query:
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url.set(drivername=f"{url.drivername}+{driver}") if driver else url


def text_literal(text: str) -> str:
    """Return *text* as a literal of SQL, as all databases but MySQL read it, and DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def open_database(text: str) -> sa.Engine:
    """Return an engine for a URL; connect once, to see that it works.

    On SQLite its transactions are what SQLAlchemy begins and commits, with DDL in them.

    Raises:
        MergeError: not a URL, a database that is not supported, no driver, or no connection.
    """
    try:
        url = with_driver(sa.make_url(text))
        if url.get_backend_name() not in _SUPPORTED:
            raise unreadable(
                f"{url.get_backend_name()} is not supported. Nothing was read; the URL of a database begins with "
                "sqlite://, postgresql://, mysql:// or mariadb://."
            )
        # a statement that is prepared on one session of a pooler is unknown to the next
        unprepared = {"prepare_threshold": None} if url.get_driver_name() == "psycopg" else {}
        is_sqlite = url.get_backend_name() == "sqlite"
        engine = _sqlite(url) if is_sqlite else sa.create_engine(url, connect_args=unprepared, poolclass=sa.NullPool)
    except (ArgumentError, ValueError) as error:
        raise unreadable(
            f"{shown(text)} is not the URL of a database. Nothing was read; write one such as "
            "postgresql://user@host/database or sqlite:///file.db."
        ) from error
    except ModuleNotFoundError as error:
        raise unreadable(
            f"the driver {error.name} is not installed. Nothing was read; install it with pip, or name another driver "
            "in the URL, such as postgresql+psycopg:// or mysql+pymysql://."
        ) from error
    # such a column is not read; SQLAlchemy would say so at each table
    warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
    begin = {"sqlite": _begin_sqlite, "postgresql": _begin_postgresql}.get(engine.dialect.name, _begin_mysql)
    event.listen(engine, "begin", begin)
    if engine.dialect.name != "postgresql":
        event.listen(engine, "connect", _set_up_sqlite if is_sqlite else _set_up_mysql)
    with database_errors(engine), engine.connect():
        pass
    return engine


def _sqlite(url: sa.URL) -> sa.Engine:
    path = Path(url.database or "")
    if not path.is_file():
        # SQLite would create the file
        raise unreadable(
            f"there is no SQLite file {str(path)!r}. Nothing was read; check the path: sqlite:///relative.db, "
            "sqlite:////absolute.db."
        )
    uri = f"file:{quote(str(path.resolve()))}?mode=rw"
    return sa.create_engine(
        url, creator=lambda: sqlite3.connect(uri, uri=True, check_same_thread=False), poolclass=sa.NullPool
    )


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # transactions begin where SQLAlchemy begins them, not at the first change
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}")
    connection.create_function("snowredis_hash", -1, _hash, deterministic=True)
    connection.create_aggregate("snowredis_sum", -1, _Sum)


def _hash(*values: object) -> int:
    return int.from_bytes(blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1


class _Sum:
    """Sum of the hashes of rows, as text: it may be greater than SQLite's numbers."""

    def __init__(self) -> None:
        self._total = 0

    def step(self, *values: object) -> None:
        self._total += _hash(*values)

    def finalize(self) -> str:
        return str(self._total)


def _set_up_mysql(connection: Any, _record: object) -> None:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(_MYSQL_SETTINGS)


def _writes(connection: sa.Connection) -> bool:
    return bool(connection.get_execution_options().get("snowredis_writes", False))


def _begin_postgresql(connection: sa.Connection) -> None:
    access = "READ WRITE" if _writes(connection) else "READ ONLY"
    for statement in (f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, {access}", *_LOCAL_SETTINGS):
        connection.exec_driver_sql(statement)


def _begin_sqlite(connection: sa.Connection) -> None:
    # This has no effect inside a transaction. It is off for changes: foreign keys are compared before the COMMIT
    connection.exec_driver_sql(f"PRAGMA foreign_keys = {'OFF' if _writes(connection) else 'ON'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _begin_mysql(connection: sa.Connection) -> None:
    if _writes(connection):
        connection.exec_driver_sql("SET SESSION foreign_key_checks = 0")
    if connection.get_execution_options().get("snowredis_pairs", False):
        # a transaction that only reads cannot make it
        connection.exec_driver_sql(_MYSQL_PAIRS)
    access = "" if _writes(connection) else ", READ ONLY"
    connection.exec_driver_sql(f"START TRANSACTION WITH CONSISTENT SNAPSHOT{access}")


@contextlib.contextmanager
def database_errors(engine: sa.Engine, changed: str = "") -> Iterator[None]:
    """Turn errors of the database into MergeError.

    Args:
        changed: what was changed until then, the start of a sentence; empty: only reading.
    """
    kind = MergeError if changed else unreadable
    drivers: type[Exception] = engine.dialect.loaded_dbapi.Error
    try:
        yield
    except (StatementError, drivers) as error:
        # str(error) would show the statement and its values
        reason = " ".join(str(getattr(error, "orig", error)).split()).rstrip(".")
        if "user-defined" in reason:
            # those of SQLite raise nothing by themselves: a signal came while one ran
            raise KeyboardInterrupt from error
        found = (advice for words, advice in _ADVICE.items() if re.search(words, reason, re.IGNORECASE))
        advice = next(found, "correct that")
        raise kind(
            f"{url_of(engine)}: {reason}. {changed or 'Nothing was changed'}; {advice}, then run the same command "
            "again."
        ) from error
    except SQLAlchemyError as error:
        raise kind(f"{url_of(engine)}: {error}. {changed or 'Nothing was changed'}.") from error


@contextlib.contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Connect to read: all of it sees the database at one moment."""
    with (
        database_errors(engine),
        engine.connect() as connection,
        connection.begin() as transaction,
    ):
        yield connection
        transaction.rollback()


class Session:
    """One transaction of one database, in which statements are run as they stand, without parameters."""

    def __init__(self, engine: sa.Engine, connection: sa.Connection) -> None:
        self.engine, self.connection = engine, connection

    @property
    def driver(self) -> Any:
        """The connection of the driver."""
        return self.connection.connection.driver_connection

    def run(self, sql: str) -> None:
        """Run a statement without a result."""
        self.connection.exec_driver_sql(sql, execution_options={"no_parameters": True}).close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        found = self.connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
        return [tuple(row) for row in found]

    def one(self, sql: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        (row,) = self.rows(sql)
        return row

    def insert(self, start: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
        """Run INSERT INTO … VALUES for *rows* of *width* values."""
        mark = "?" if self.engine.dialect.name == "sqlite" else "%s"
        with contextlib.closing(self.driver.cursor()) as cursor:
            if mark == "%s":
                start = start.replace("%", "%%")
            cursor.executemany(f"{start} VALUES ({', '.join([mark] * width)})", rows)

    def pages(self, sql: str) -> Iterator[Sequence[Any]]:
        """Yield the rows of a query in pages, as the driver reads them. No other query may run meanwhile."""
        cursor = self._cursor()
        decoders = getattr(self.driver, "decoders", None)
        try:
            if decoders:
                # pymysql would make of each value what Python takes it for: rows pass as the server sent them
                self.driver.decoders = {}
            cursor.execute(sql)
            if decoders:
                self.driver.decoders = decoders
            while page := cursor.fetchmany(PAGE):
                yield page
        finally:
            cursor.close()

    def _cursor(self) -> Any:
        if self.engine.dialect.name == "postgresql":
            return self.driver.cursor(name="snowredis_pages")
        if self.engine.dialect.name == "sqlite":
            return self.driver.cursor()
        from pymysql.cursors import SSCursor

        return self.driver.cursor(SSCursor)


@contextlib.contextmanager
def transaction(engine: sa.Engine, *, writes: bool = False) -> Iterator[Session]:
    """Run one transaction, which sees the database at one moment. It is rolled back unless session.run("COMMIT")."""
    refused = "The transaction was rolled back, and nothing was changed" if writes else ""
    options = {"snowredis_writes": writes, "snowredis_pairs": True}
    with database_errors(engine, refused), engine.connect().execution_options(**options) as connection:
        try:
            connection.begin()
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql(_SQLITE_PAIRS)
            yield Session(engine, connection)
        finally:
            # without a COMMIT until now there is none; settings of this transaction must not reach the next one
            connection.invalidate()


def take_lock(session: Session, name: str) -> None:
    """Take the advisory lock *name* of the database until the transaction ends, or this process dies.

    SQLite has none: there BEGIN IMMEDIATE keeps other writers out.

    Raises:
        MergeError: another session holds it, for LOCK_WAIT_S.
    """
    if session.engine.dialect.name != "sqlite" and not _take(session.connection, name, LOCK_WAIT_S):
        raise MergeError(
            f"another process merges into {url_of(session.engine)}. Nothing was changed by this one; wait for the "
            "other, or stop it, and run the same command again."
        )


def _take(connection: sa.Connection, name: str, wait_s: int) -> bool:
    if connection.dialect.name != "postgresql":
        query = sa.text("SELECT GET_LOCK(CONCAT(:name, '.', MD5(DATABASE())), :wait)")
        return bool(connection.scalar(query, {"name": name, "wait": wait_s}))
    key = {"key": int.from_bytes(blake2b(name.encode(), digest_size=7).digest())}
    if not wait_s:
        return bool(connection.scalar(sa.text("SELECT pg_try_advisory_xact_lock(:key)"), key))
    try:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), key)
    except StatementError:
        return False
    return True


def is_same_database(one: sa.Engine, other: sa.Engine) -> bool:
    """Return whether two URLs of one kind lead to one database: a lock of one is seen from the other."""
    if one.dialect.name == "sqlite":
        return Path(one.url.database or "").samefile(other.url.database or "")
    name = f"snowredis_{secrets.token_hex(8)}"
    with database_errors(one), one.connect() as first, database_errors(other), other.connect() as second:
        if not _take(first, name, 0):
            raise MergeError(f"{url_of(one)} grants no advisory lock. Nothing was changed; connect without a proxy.")
        is_same = not _take(second, name, 0)
        first.invalidate()
        second.invalidate()
        return is_same


@functools.cache
def catalog_query(kind: str, name: str) -> sa.TextClause:
    """Return a query of the catalog of a kind of database; sql/KIND.sql has them, each behind a line of its name."""
    path = f"sql/{'mysql' if kind == 'mariadb' else kind}.sql"
    text = files("snowredis.merge").joinpath(path).read_text(encoding="utf-8")
    queries = dict(re.findall(r"^-- (\w+): .*\n([^;]+);", text, re.MULTILINE))
    return sa.text(queries[name])


# seconds between two drawings
_DRAWN_S = 0.1


class Progress:
    """A changing line on a terminal; a context manager that removes it at its end."""

    def __init__(self) -> None:
        self._is_shown = is_terminal(sys.stderr)
        self._text, self._total, self._done = "", 0.0, 0.0
        self._began_s = self._drawn_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def start(self, text: str, total: float = 0) -> None:
        """Begin a phase; *total*: of what add() counts, 0 if it is unknown."""
        self._text, self._total, self._done = text, total, 0.0
        self._began_s = time.monotonic()
        self.show()

    def add(self, done: float) -> None:
        """Count *done* more of the total."""
        self._done += done
        self.show()

    def show(self) -> None:
        """Draw the state, unless it was drawn a moment ago."""
        now_s = time.monotonic()
        if not self._is_shown or now_s - self._drawn_s < _DRAWN_S:
            return
        self._drawn_s, text, elapsed_s = now_s, self._text, now_s - self._began_s
        if self._total:
            text = f"{text} {min(self._done / self._total, 1):4.0%}"
        if self._done and elapsed_s > 1:
            left_s = max(0.0, self._total - self._done) / self._done * elapsed_s
            text = f"{text}, about {duration(left_s * 1000)} left"
        line = fitted(printable(text), shutil.get_terminal_size().columns - 1)
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the changing line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
