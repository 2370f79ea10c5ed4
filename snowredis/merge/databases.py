"""Engines of databases by their URL, the errors of drivers, what a database says of its tables, and progress.

Tables, keys and counters are made of the rows of the queries in sql/, which have the same columns for every kind of
database. No row of a table is read here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from snowredis.cli.output import printable
from snowredis.errors import shown
from snowredis.merge import MergeError, unreadable

# kinds of databases, and the driver of a URL that names none; that of SQLite is a part of Python
_DRIVERS = {"sqlite": "", "postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
# user:password@ of a URL, which ends at the last @: a password may hold anything unescaped
_PASSWORD = re.compile(r"(?<=://)([^:/@]*:).*(?=@)|(?<=[?&])(\w*passw\w*=)[^&#\s]*", re.IGNORECASE | re.DOTALL)
# what to do, by what the error of a database says
_ADVICE = {
    "lock (timeout|wait)|locked|deadlock": "another process uses the database: stop the application that writes to it",
    "duplicate|unique": 'two rows would have one key: taken, match or rows = "first" of that table say what happens',
    "denied|must be owner|permission|authentication|readonly": "check the user, the password, and that this user owns "
    "the tables",
    "connect|refused|gone away|terminat|no such file|resolve": "check that the server runs, and the host, port and "
    "database of the URL",
}


def without_password(url: str) -> str:
    """Return *url* with ``***`` in place of its password."""
    return _PASSWORD.sub(r"\1\2***", url)


def url_of(engine: sa.Engine) -> str:
    """Return the URL of *engine*, without a password."""
    return without_password(engine.url._replace(password=None).render_as_string())


def text_literal(text: str) -> str:
    """Return *text* as a literal of SQL, as all databases but MySQL read it, and DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def open_database(text: str) -> sa.Engine:
    """Return an engine for a URL; connect once, to see that it works.

    Raises:
        MergeError: not a URL, a database that is not supported, no driver, or no connection.
    """
    try:
        url = sa.make_url(text)
        if (driver := _DRIVERS[url.get_backend_name()]) and "+" not in url.drivername:
            url = url.set(drivername=f"{url.drivername}+{driver}")
        if not driver and not Path(url.database or "").is_file():
            # SQLite would create the file
            raise unreadable(
                f"there is no SQLite file {url.database or ''!r}. Nothing was read; check the path: "
                "sqlite:///relative.db, sqlite:////absolute.db."
            )
        # a statement that is prepared on one session of a pooler is unknown to the next
        unprepared = {"prepare_threshold": None} if url.get_driver_name() == "psycopg" else {}
        engine = sa.create_engine(url, connect_args=unprepared, poolclass=sa.NullPool)
    except (ArgumentError, KeyError, ValueError) as error:
        raise unreadable(
            f"{shown(without_password(text))} is not the URL of a database of MariaDB, MySQL, PostgreSQL or SQLite. "
            "Nothing was read; write one such as postgresql://user@host/database or sqlite:///file.db."
        ) from error
    except ModuleNotFoundError as error:
        raise unreadable(
            f"the driver {error.name} is not installed. Nothing was read; install it with pip, or name another driver "
            "in the URL, such as postgresql+psycopg:// or mysql+pymysql://."
        ) from error
    with database_errors(engine):
        engine.raw_connection().close()
    return engine


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


# --- what a database says of its tables ------------------------------------------------------------------

Kind = Literal["int", "text", "bytes", "float", "json", "array", "other"]
# the one table that a merge adds to the first database, and that of an older form of this tool
MARK, OLD_MAP = "snowredis_merge", "snowredis_merge_map"
# words at the top of a map; a table of such a name has a dot before it there
HEAD = ("application", "reviewed", "schema")
# name and type of what a table of SQLite without an INTEGER PRIMARY KEY has, too; a column may have the same name
ROWID = "rowid"
_MAX = (1 << 63) - 1


@dataclass
class TableColumn:
    """A column.

    Attributes:
        type: as the database writes it.
        description: type, NOT NULL, collation and more: what must be the same in both databases.
        kind: what its values are to a merge.
        limit: the greatest number that fits, of integers.
        is_generated: the database computes it.
        is_counter: the database numbers it.
    """

    name: str
    type: str
    description: str
    kind: Kind
    limit: int
    is_generated: bool = False
    is_counter: bool = False
    collation: str | None = None


@dataclass
class ForeignKey:
    """A foreign key between two tables, which are named as in a map.

    Attributes:
        timing: PostgreSQL: its table and name, and when it is checked, divided by a bar.
    """

    columns: list[str]
    parent: str
    parents: list[str]
    timing: str = ""

    def target(self, column: str) -> str:
        """Return the column of the parent that one of its columns leads to."""
        return self.parents[self.columns.index(column)]


@dataclass
class Table:
    """A table.

    Attributes:
        name: as a map names it: with its schema, unless that is the default one.
        sql: its quoted name.
        refusals: why its rows cannot be copied, each with what to do.
        refusals_as_first: why the first database cannot hold rows of it in one transaction.
        primary: columns of its primary key.
        uniques: columns of each of its unique keys, the primary one first.
        triggers: their names, with PostgreSQL's mode and table, or the SQL that makes them again.
    """

    name: str
    sql: str
    refusals: list[str] = field(default_factory=list)
    refusals_as_first: list[str] = field(default_factory=list)
    columns: dict[str, TableColumn] = field(default_factory=dict)
    primary: list[str] = field(default_factory=list)
    uniques: list[list[str]] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    triggers: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def written(self) -> list[TableColumn]:
        """The columns that a map declares: all but those that the database computes, and the rowid."""
        return [column for column in self.columns.values() if not column.is_generated and column.type != ROWID]


Tables = dict[str, Table]


@dataclass(frozen=True)
class Counter:
    """A sequence, an AUTO_INCREMENT or an AUTOINCREMENT.

    Attributes:
        table, column: that it numbers; None: a sequence that no column uses.
        name: of a sequence.
        last: the greatest number that it gave.
    """

    table: str | None
    column: str | None
    name: str | None
    last: int


# runs a query of the catalog by its name
Query = Callable[[str], list[Any]]


def read_tables(query: Query) -> Tables:
    """Return all tables, but those of this tool."""
    tables = Tables()
    for row in query("tables"):
        if not row.tab.startswith(MARK):
            name = _name(row.schema_name, row.tab)
            tables[name] = Table(name, row.sql, [row.refused] * bool(row.refused), [row.refusal] * bool(row.refusal))

    def known(name: str) -> Iterator[tuple[Table, Any]]:
        """Yield the rows of a query that are about one of the tables."""
        rows = ((tables.get(_name(row.schema_name, row.tab)), row) for row in query(name))
        yield from ((table, row) for table, row in rows if table)

    for table, row in known("columns"):
        table.refusals += [f"{row.name} {row.refusal}"] * bool(row.refusal)
        limit, is_generated, is_counter = int(row.greatest or _MAX), bool(row.is_generated), bool(row.is_counter)
        table.columns[row.name] = TableColumn(
            row.name, row.type, row.description, row.kind, min(limit, _MAX), is_generated, is_counter, row.collation
        )
    for table, row in known("keys"):
        columns = json.loads(row.columns)
        table.primary += columns * bool(row.is_primary)
        table.uniques += [columns] * (columns not in table.uniques)
    for table, row in known("foreign_keys"):
        if (parent := _name(row.parent_schema, row.parent)) in tables:
            columns, parents = json.loads(row.columns), json.loads(row.parents)
            table.foreign_keys.append(ForeignKey(columns, parent, parents, row.timing))
    for table, row in known("triggers"):
        table.triggers.append((row.name, row.mode, row.definition))
        table.refusals_as_first += [row.refusal] * bool(row.refusal)
    return tables


def _name(schema: str | None, table: str) -> str:
    return f"{schema}.{table}" if schema else f".{table}" if table in HEAD else table


def read_counters(query: Query, tables: Tables) -> list[Counter]:
    """Return the counters of these tables, and those of no table."""
    found = ((_name(row.schema_name, row.tab) if row.tab else None, row) for row in query("counters"))
    return [
        Counter(name, row.col, row.name, int(row.last or 0)) for name, row in found if name is None or name in tables
    ]


# --- comparing -------------------------------------------------------------------------------------------


def checksum(tables: Tables) -> str:
    """Return a hash of the names and types of all columns."""
    described = {name: [(c.name, c.type) for c in table.written] for name, table in tables.items()}
    return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=8).hexdigest()


def obstacles(name: str, first: Table, second: Table) -> Iterator[str]:
    """Yield why a table cannot be copied, or how it differs between the databases."""
    mine, its = ({c.name: c.description for c in table.columns.values()} for table in (first, second))
    if differ := [each for each in {**mine, **its} if mine.get(each) != its.get(each)]:
        found = (f"{each} is {mine.get(each, 'missing')} and {its.get(each, 'missing')}" for each in differ[:5])
        text = f"differs between the first and the second database: {', '.join(found)}"
        yield f'[{name}] {text}: make them the same, or rows = "skip"'
        return
    for text in dict.fromkeys(first.refusals + first.refusals_as_first + second.refusals):
        yield f'[{name}] {text}, or rows = "skip"'


# a number as a merge moves it in a text
_PLAIN = re.compile("[1-9][0-9]{0,18}")


def plain(column: TableColumn, value: Any) -> Any:
    """Return a value as it is compared: the same for every driver."""
    if value is None or isinstance(value, bytes | int):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    text = str(value)
    if column.kind in ("int", "float"):
        text = text.removesuffix(".0")
        return int(text) if text.removeprefix("-").isdecimal() else text
    return text


def whole(values: Iterable[Any]) -> set[int]:
    """Return the positive whole numbers among values, those in texts included."""
    texts = (value.decode("latin-1") if isinstance(value, bytes) else value for value in values)
    return {int(text) for text in texts if (_PLAIN.fullmatch(text) if isinstance(text, str) else text and text > 0)}


def parents_first(tables: Mapping[str, Table], names: list[str]) -> tuple[list[str], list[str]]:
    """Return tables in an order in which parents come first, and how the foreign keys of circles are named."""
    left, ordered, late = list(names), list[str](), list[str]()
    while left:
        missing = {n: [k for k in tables[n].foreign_keys if k.parent in left and k.parent != n] for n in left}
        free = [name for name in left if not missing[name]] or [min(left, key=lambda name: len(missing[name]))]
        late += [key.timing for name in free for key in missing[name] if key.timing]
        ordered += free
        left = [name for name in left if name not in free]
    return ordered, late


# --- what names say ---------------------------------------------------------------------------------------

# what a row is to another one: the table of such ids is called otherwise
_ROLE = (
    "owner|leader|master|sender|receiver|author|maker|creator|reporter|parent|child|father|mother|partner|spouse|friend|"
    "target|by|bidder|seller|buyer|captain|sponsor|apprentice|recruiter|invitee|inviter|editor|user|player|char|character|"
    "assignee|member|winner|loser|killer|victim|summoner"
)
_ID_NAME = re.compile(
    rf"(id|guid|uid|oid|{_ROLE}|account|guild|clan|family|party|team)s?_?\d*$|(^|_)(to|from)_?\d*$", re.IGNORECASE
)
ROLE_NAME = re.compile(f"(^|{_ROLE})$")
AMOUNT_NAME = re.compile(
    r"((^|_)([xyz]|sp|hp|mp|str|int|dex|agi|vit|luk|map|pos)|time|date|stamp|exp|level|count|amount|price|money|gold|"
    r"cost|points?|score|rank|rating|state|status|flags?|mask|type|kind|slot|size|zone|index|order|position|value|total|"
    r"duration|expires?|enabled|active|percent|color|version|day|month|year|hour|quantity|stack|energy|power|wins?|"
    r"games?|kills?|deaths?|honou?r|race|class|mmr)_?\d*$|(^|_|last|start|min|max|highest|current|player)"
    r"(acid|bid|druid|fluid|grid|humid|hybrid|liquid|paid|raid|rapid|solid|(in)?valid|a?void)$|(pre|un)paid$|"
    r"^(max|min|num|total|avg|sum)_|_done_|(^|_)(is|has|can|was)_",
    re.IGNORECASE,
)
# stems of things of which an application has a list, often outside of the database, such as maps
LISTED_NAME = re.compile(
    r"(class|race|item|recipe|skill|spell|npc|monster|mob|map|zone|area|region|quest|model|display|skin|template|type|"
    r"kind|category|cat|bracket|season|hench|ammo|ability|effect|icon|language|lang|slot|option|cmd|command)s?$",
    re.IGNORECASE,
)


def stem(name: str) -> str:
    """Return a name without what says that it is an id."""
    one = re.sub(r"(_?id|_?guid|_?no)?_?\d*$", "", name.lower()).replace("_", "")
    return re.sub(r"ies$", "y", one) if one.endswith("ies") else one.rstrip("s") or one


def without_prefix(tables: Iterable[str]) -> dict[str, str]:
    """Return the names of tables without their schema, and without a prefix that nearly all of them have."""
    names = {name: name.rpartition(".")[2] for name in tables}
    starts = [name[: name.find("_") + 1] for name in names.values()]
    prefix = max(starts, key=starts.count, default="")
    is_common = len(starts) > 2 and starts.count(prefix) >= 0.8 * len(starts)
    return {name: short.removeprefix(prefix) if is_common else short for name, short in names.items()}


def nearness(name: str, table: str, column: str = "id") -> int:
    """Return how a column is named: 3: as a table, 2: as a part of its name, 1: as its ids, 0: as none of these."""
    mine, table, its = stem(name), stem(table), stem(column)
    if not mine:
        return 0
    if mine == table or (len(table) > 2 and mine.endswith(table)):
        return 3
    is_part = mine in table if len(mine) > 2 else not its and table.startswith(mine)
    return 2 if is_part else int(bool(its) and mine.endswith(its))


def is_named_like_an_id(name: str) -> bool:
    return bool(_ID_NAME.search(name)) and not AMOUNT_NAME.search(name)


# --- progress --------------------------------------------------------------------------------------------


class Progress:
    """A changing line on a terminal; a context manager that removes it at its end."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        self._drawn = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw("")

    def start(self, text: str, total: float = 0) -> None:
        """Begin a phase; *total*: of what add() counts, 0 if it is unknown."""
        self._text, self._total, self._done = text, total, 0.0
        self.add(0)

    def add(self, done: float) -> None:
        """Count *done* more of the total."""
        self._done += done
        self._draw(f"{self._text} {min(self._done / self._total, 1):4.0%}" if self._total else self._text)

    def _draw(self, line: str) -> None:
        if self._is_shown and line != self._drawn:
            self._drawn, width = line, shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{printable(line, width)}", end="", file=sys.stderr, flush=True)
