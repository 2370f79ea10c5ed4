"""Read ids from a column of a database, in pages, so that a check can stop and go on.

A column of whole numbers that an index begins with is read in its order, each page by a short query of its own. Any
other column is read by one long query, which starts anew if it was stopped. Only SELECT is sent.
"""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError

from snowredis.errors import SourceError, shown
from snowredis.merge.databases import with_driver
from snowredis.merge.sources import Source, without_password

__all__ = ["Page", "TableReader"]

# rows of one page: some 10 MB as Python integers
PAGE_ROWS = 100_000
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_REJECTED_CHARS = 200


@dataclass(frozen=True, slots=True)
class Page:
    """Values of some rows.

    Attributes:
        ids: those that are 64-bit integers, as an array of numpy.
        rejected: the others, as text; empty for NULL.
        position: the greatest value that was read, to go on from; None if it is not read in order.
        times: how often each value is there.
    """

    ids: Any
    rejected: list[str]
    position: int | None
    times: int = 1


class TableReader:
    """One column of a database; a context manager that closes the connection.

    Attributes:
        rows: how many rows are to be read, for the progress.
        in_order: whether reading can go on after a stop.

    Raises:
        SourceError: the database, the table or the column cannot be read, or does not hold whole numbers.
    """

    def __init__(self, source: Source, after: int | None = None) -> None:
        self._source = source
        self._engine = _engine(source)
        try:
            with self._errors():
                self._column = self._reflect()
                self.in_order = isinstance(self._column.type, sa.Integer) and self._is_indexed()
                self._after = after if self.in_order else None
                with self._engine.connect() as connection:
                    query = sa.select(sa.func.count()).select_from(self._column.table)
                    if self._after is not None:
                        query = query.where(self._column > self._after)
                    self.rows: int = connection.execute(query).scalar_one()
        except BaseException:
            self._engine.dispose()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def pages(self) -> Iterator[Page]:
        """Yield all values, a page at a time."""
        with self._errors():
            if not self.in_order:
                with self._engine.connect() as connection:
                    yield from self._stream(connection, sa.select(self._column))
                return
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                yield from self._in_order(connection)
            if self._after is None or self._is_sqlite:
                with self._engine.connect() as connection:
                    yield from self._stream(connection, sa.select(self._column).where(self._unordered()))

    @property
    def _is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    def _ordered(self) -> sa.ColumnElement[bool]:
        """Return the condition for values that are whole numbers: SQLite stores any type in any column."""
        if self._is_sqlite:
            return sa.func.typeof(self._column) == "integer"
        return self._column.is_not(None)

    def _unordered(self) -> sa.ColumnElement[bool]:
        if self._is_sqlite:
            return sa.func.typeof(self._column) != "integer"
        return self._column.is_(None)

    def _in_order(self, connection: sa.Connection) -> Iterator[Page]:
        after = self._after
        while True:
            query = sa.select(self._column).where(self._ordered()).order_by(self._column).limit(PAGE_ROWS)
            if after is not None:
                query = query.where(self._column > after)
            values: Sequence[Any] = connection.execute(query).scalars().all()
            if not values:
                return
            last, is_full = values[-1], len(values) == PAGE_ROWS
            if is_full:
                # there may be more rows with the last value, and the next page starts above what this one has
                values = values[: bisect_left(values, last)]
            if values:
                after = int(values[-1])
                yield Page(*_split(values), after)
            elif is_full:
                same = sa.select(sa.func.count()).select_from(self._column.table).where(self._column == last)
                after = int(last)
                yield Page(*_split([last]), after, connection.execute(same).scalar_one())
            if not is_full:
                return

    def _stream(self, connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Page]:
        result = connection.execution_options(stream_results=True, yield_per=PAGE_ROWS).execute(query)
        for values in result.scalars().partitions():
            yield Page(*_split(values), None)

    # --- what is there -----------------------------------------------------------------------------

    def _reflect(self) -> sa.Column[Any]:
        """Return the column of the source, as the database describes it."""
        source = self._source
        try:
            table = sa.Table(
                str(source.table), sa.MetaData(), schema=source.schema, autoload_with=self._engine
            )
        except NoSuchTableError:
            inspector = sa.inspect(self._engine)
            names = inspector.get_table_names(source.schema) + inspector.get_view_names(source.schema)
            raise self._refused(
                f"there is no table {shown(source.table)}",
                f"It has {_listed(names)}; name one of these after the #",
            ) from None
        column = table.c.get(str(source.column))
        if column is None:
            raise self._refused(
                f"table {shown(source.table)} has no column {shown(source.column)}",
                f"It has {_listed(list(table.c.keys()))}; name one of these after the #",
            )
        if isinstance(column.type, sa.Float):
            raise self._refused(
                f"column {shown(source.column)} holds {column.type}, which loses the last digits of an id "
                "from 2**53 on",
                "Name a column of whole numbers",
            )
        if not isinstance(column.type, sa.Integer | sa.Numeric | sa.String | sa.types.NullType):
            raise self._refused(
                f"column {shown(source.column)} holds {column.type}, not whole numbers",
                "Name the column of the ids",
            )
        return column

    def _is_indexed(self) -> bool:
        """Return whether an index begins with the column."""
        inspector = sa.inspect(self._engine)
        table = (self._column.table.name, self._source.schema)
        indexes: list[Sequence[str | None]] = [
            inspector.get_pk_constraint(*table).get("constrained_columns", [])
        ]
        indexes += [index["column_names"] for index in inspector.get_indexes(*table)]
        indexes += [unique["column_names"] for unique in inspector.get_unique_constraints(*table)]
        return any(columns[:1] == [self._column.name] for columns in indexes)

    def _refused(self, what: str, advice: str) -> SourceError:
        return SourceError(
            f"{self._source.name}: {without_password(self._source.location)}: {what}. Nothing of it was used. {advice}."
        )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLAlchemy and of the driver into SourceError."""
        try:
            yield
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split()).rstrip(".")
            raise self._refused(f"the database says: {reason}", _advice(reason)) from error
        except SQLAlchemyError as error:
            raise self._refused(str(error).rstrip("."), "See what SQLAlchemy says") from error


def _split(values: Sequence[Any]) -> tuple[Any, list[str]]:
    """Return the values that are 64-bit integers, and the text of the others."""
    # bool is another type
    if set(map(type, values)) == {int}:
        with contextlib.suppress(OverflowError):
            return np.array(values, dtype=np.int64), []
    ids, rejected = [], []
    for value in values:
        number = _whole(value)
        if number is not None and _MIN_INT64 <= number <= _MAX_INT64:
            ids.append(number)
        else:
            rejected.append("" if value is None else str(value)[:_MAX_REJECTED_CHARS])
    return np.array(ids, dtype=np.int64), rejected


def _whole(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case str() if value.strip().isascii() and value.strip().isdigit() and len(value) < 40:
            return int(value)
    return None


def _engine(source: Source) -> sa.Engine:
    """Return an engine for the URL of *source*; connects to nothing."""
    try:
        url = with_driver(sa.make_url(source.location))
        backend = url.get_backend_name()
        if backend == "sqlite":
            return _sqlite_engine(source, url)
        return sa.create_engine(url, poolclass=sa.NullPool)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise SourceError(
            f"{source.name}: {shown(without_password(source.location))} is no URL of a database: {error}. Nothing was "
            "read; write one such as postgresql://user@host/database#table.column."
        ) from error
    except ModuleNotFoundError as error:
        package = {"psycopg": "psycopg[binary]", "MySQLdb": "mysqlclient"}.get(error.name or "", error.name)
        raise SourceError(
            f"{source.name}: the driver {error.name} is not installed. Nothing was read; install it with: "
            f"pip install '{package}'"
        ) from error


def _sqlite_engine(source: Source, url: sa.URL) -> sa.Engine:
    """Return an engine that opens the file for reading only; SQLite would create one that is missing."""
    path = Path(url.database or "")
    if not path.is_file():
        raise SourceError(
            f"{source.name}: there is no SQLite file {str(path)!r}. Nothing was read; write sqlite:///relative.db or "
            "sqlite:////absolute.db."
        )
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    return sa.create_engine(
        url, poolclass=sa.NullPool, creator=lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)
    )


def _listed(names: list[str]) -> str:
    return (", ".join(map(shown, names[:12])) + (", …" if len(names) > 12 else "")) or "none"


def _advice(reason: str) -> str:
    lower = reason.lower()
    if any(word in lower for word in ("password", "denied", "permission", "authentication", "role")):
        return "Check the user and the password of the URL, and that this user may SELECT from the table"
    if any(
        word in lower for word in ("connect", "refused", "gone away", "terminat", "no such file", "resolve")
    ):
        return "Check that the server runs, and the host, port and database of the URL"
    return "Correct that, and run the same command again"
