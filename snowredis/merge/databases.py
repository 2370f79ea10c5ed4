"""Engines of databases by their URL, the errors of drivers, and the progress of what takes time."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from snowredis.cli.output import fitted, is_terminal, printable
from snowredis.core.values import duration
from snowredis.errors import shown
from snowredis.merge import MergeError, unreadable

_SUPPORTED = ("sqlite", "postgresql", "mysql", "mariadb")
# the driver of a URL that names none
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
# what to do, by what the error of a database says
_ADVICE = {
    "lock (timeout|wait)|locked|deadlock": "another process uses the database: stop the application that writes to it",
    "denied|must be owner|permission|authentication|readonly": "check the user, the password, and that this user owns "
    "the tables",
    "connect|refused|gone away|terminat|no such file|resolve": "check that the server runs, and the host, port and "
    "database of the URL",
}


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
    with database_errors(engine):
        engine.raw_connection().close()
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
    except (SQLAlchemyError, drivers) as error:
        # str(error) of SQLAlchemy would show the statement and its values
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
