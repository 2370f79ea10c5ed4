"""Connections to the databases of a merge, and their errors as errors of snowredis."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError, StatementError

from snowredis.errors import MergeError, shown

__all__ = ["database_errors", "open_database", "reading", "stream", "url_of", "with_driver"]

SUPPORTED = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
# backend -> drivers in the order in which they are looked for: the module, and what it is called in URLs
_MYSQL = {"pymysql": "pymysql", "MySQLdb": "mysqldb"}
DRIVERS = {
    "postgresql": {"psycopg": "psycopg", "psycopg2": "psycopg2"},
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
# how long a statement waits for somebody else's lock before it gives up
LOCK_WAIT_S = 15
# rows that are fetched at once
_FETCH = 20_000


def url_of(engine: sa.Engine, *, hide: bool = True) -> str:
    """Return the URL of *engine*: with *** for a password, or without one."""
    if hide:
        return engine.url.render_as_string(hide_password=True)
    return engine.url._replace(password=None).render_as_string(hide_password=False)


def with_driver(url: sa.URL) -> sa.URL:
    """Return *url* with a driver that is installed, if it names none and one of DRIVERS is."""
    backend = url.get_backend_name()
    if url.drivername != backend or backend not in DRIVERS:
        return url
    names = DRIVERS[backend]
    module = next((name for name in names if importlib.util.find_spec(name)), next(iter(names)))
    return url.set(drivername=f"{backend}+{names[module]}")


def open_database(text: str) -> sa.Engine:
    """Return an engine for a URL; connect once, to see that it works.

    On SQLite its transactions are what SQLAlchemy begins and commits, with DDL in them.

    Raises:
        MergeError: not a URL, a database that is not supported, no driver, or no connection.
    """
    try:
        url = with_driver(sa.make_url(text))
        if url.get_backend_name() not in SUPPORTED:
            raise MergeError(
                f"{url.get_backend_name()} is not supported. Nothing was read; merge and apply work on "
                "sqlite://, postgresql:// and mysql:// or mariadb:// databases."
            )
        engine = sa.create_engine(url)
    except ArgumentError as error:
        raise MergeError(
            f"{shown(text)} is not the URL of a database. Nothing was read; write one such as "
            "postgresql+psycopg://user@host/database or sqlite:///file.db."
        ) from error
    except NoSuchModuleError as error:
        raise MergeError(f"{error}. Nothing was read; check the name before the ://.") from error
    except ModuleNotFoundError as error:
        raise MergeError(
            f"the driver {error.name} is not installed. Nothing was read; install it with pip, or name another driver "
            "in the URL, such as postgresql+psycopg:// or mysql+pymysql://."
        ) from error
    if engine.dialect.name == "sqlite":
        path = engine.url.database
        if not path or path == ":memory:" or not Path(path).is_file():
            raise MergeError(
                f"there is no SQLite file {path or ''}. Nothing was read; check the path: sqlite:///relative.db, "
                "sqlite:////absolute.db."
            )
        # a plan may be applied from another directory
        engine = sa.create_engine(url.set(database=str(Path(path).resolve())))
    event.listen(engine, "connect", _set_up(engine.dialect.name))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "begin", _begin_sqlite)
    with database_errors(engine), engine.connect():
        pass
    return engine


def _set_up(dialect: str) -> Any:
    def connected(connection: Any, _record: object) -> None:
        if dialect == "sqlite":
            # transactions begin where SQLAlchemy begins them, not at the first change
            connection.isolation_level = None
            statements = [f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}"]
        elif dialect == "postgresql":
            # row_security: rows that are hidden from this user are an error, not missing
            statements = [f"SET lock_timeout = '{LOCK_WAIT_S}s'", "SET row_security = off"]
        else:
            statements = [f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}"]
            statements += [f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}"]
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        if dialect == "postgresql":
            connection.commit()

    return connected


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    # has no effect inside a transaction
    connection.exec_driver_sql(
        f"PRAGMA foreign_keys = {'ON' if options.get('snowredis_keys', True) else 'OFF'}"
    )
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("snowredis_writes") else "BEGIN")


@contextlib.contextmanager
def database_errors(engine: sa.Engine, changed: str = "Nothing was changed") -> Iterator[None]:
    """Turn errors of the database into MergeError.

    Args:
        changed: what was changed until then, the start of a sentence.
    """
    try:
        yield
    except StatementError as error:
        # without the statement and its values
        reason = str(error.orig).strip().replace("\n", " ")
        raise MergeError(
            f"{url_of(engine)}: {reason}. {changed}; {_advice(reason)}, then run the same command again."
        ) from error
    except SQLAlchemyError as error:
        raise MergeError(f"{url_of(engine)}: {error}. {changed}.") from error


def _advice(reason: str) -> str:
    lower = reason.lower()
    if any(word in lower for word in ("lock timeout", "lock wait", "locked", "deadlock")):
        return "somebody else uses the database: stop the application that writes to it"
    if any(word in lower for word in ("denied", "must be owner", "permission", "authentication", "readonly")):
        return "connect as a user that owns the tables, or check the password"
    if any(word in lower for word in ("connect", "refused", "gone away", "terminat", "no such file")):
        return "check that the server runs and that the URL is right"
    return "see what the database says"


@contextlib.contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Connect to read: all of it sees the database at one moment."""
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with (
        database_errors(engine),
        engine.connect().execution_options(**options) as connection,
        connection.begin() as transaction,
    ):
        yield connection
        transaction.rollback()


@contextlib.contextmanager
def writing(engine: sa.Engine, changed: str, *, keys: bool = True) -> Iterator[sa.Connection]:
    """Run one transaction that changes the database.

    Args:
        changed: what an error says of the changes until then.
        keys: whether SQLite checks foreign keys. Even at the commit only, SQLite 3.53 finds violations that are not
            there where many rows of a table that refers to itself have changed.
    """
    options = {"snowredis_writes": True, "snowredis_keys": keys}
    with database_errors(engine, changed), engine.connect().execution_options(**options) as connection:
        try:
            with connection.begin():
                yield connection
        except BaseException:
            # what was set for this transaction must not be there in the next one
            connection.invalidate()
            raise


def stream(connection: sa.Connection, query: sa.Executable) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query without reading all of them at once.

    Only one query of a connection may be under way (MariaDB).
    """
    options = {"stream_results": True, "yield_per": _FETCH}
    with connection.execute(query, execution_options=options) as result:
        for part in result.partitions():
            yield from part
