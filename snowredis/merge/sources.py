"""Sources of ids as a person writes them: [NAME=]LOCATION[#COLUMN], where LOCATION is a file or the URL of a database.

    players.parquet#id                                  one column of a file
    europe=dumps/players-*.csv.gz#player_id             several files that are one source, with a name
    ids.txt.gz                                          one id per line
    postgresql://app@db1/game#players.id                a table and a column
    sqlite:///shard.db#main.players.id                  … with its schema

Opens nothing and reads no file; only whether a file with exactly this name exists is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from snowredis.errors import shown
from snowredis.merge import SourceError

Kind = Literal["database", "csv", "parquet"]
# file endings -> how DuckDB reads the file; .gz may follow that of a text
FILE_KINDS: dict[str, Kind] = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet"}
_GZIP = ".gz"
_NAME = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.+)", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+_]*://", re.IGNORECASE)
# user:password@ of a URL; a password may hold an unescaped @, and ends at the last one before the path
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^/\s]*@")
_PASSWORD_IN_QUERY = re.compile(r"([?&]password=)[^&#\s]*", re.IGNORECASE)
# parts of schema.table.column; a part in double quotes may hold anything, and "" is one quote
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Source:
    """One column of ids.

    Attributes:
        name: what reports call it; different for each source of one run.
        kind: how it is read.
        location: path or pattern of files, or URL of the database, with its password.
        column: name of the column; None: the only column of the file, or "id".
        table, schema: of a database.
    """

    name: str
    kind: Kind
    location: str
    column: str | None = None
    table: str | None = None
    schema: str | None = None

    @property
    def shown(self) -> str:
        """Location and column as text for people and for files, without the password."""
        column = ".".join(part for part in (self.schema, self.table, self.column) if part is not None)
        return without_password(self.location) + (f"#{column}" if column else "")


def without_password(url: str) -> str:
    """Return *url* with ``***`` in place of its password."""
    return _PASSWORD_IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Return the sources that *texts* name: [NAME=]LOCATION[#COLUMN], see the top of this module.

    Raises:
        SourceError: a text that names no source, or two sources of the same name.
    """
    sources = [_parse(*_split_name(text)) for text in texts]
    names = [source.name for source in sources]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise SourceError(
            f"two sources are named {shown(min(repeated))}. Nothing was read; give each source another NAME=."
        )
    return sources


def _split_name(text: str) -> tuple[str | None, str]:
    match = _NAME.fullmatch(text)
    # a file may be called a=b
    if match is None or Path(text).exists() or Path(text.rpartition("#")[0]).is_file():
        return None, text
    return match[1], match[2]


def _parse(name: str | None, text: str) -> Source:
    if _URL.match(text):
        location, schema, table, column = _split_url(text)
        database = without_password(location).rpartition("/")[2].partition("?")[0]
        return Source(name or f"{database}.{table}", "database", location, column, table, schema)
    location, given = _split_column(text)
    return Source(name or Path(location).name, kind_of(location), location, given)


def _split_column(text: str) -> tuple[str, str | None]:
    path, hash_sign, column = text.rpartition("#")
    if not hash_sign or not path or Path(text).is_file():
        return text, None
    return path, column or None


def kind_of(path: str) -> Kind:
    """Return how a file of this name is read; SourceError if its ending is unknown."""
    name = path.lower()
    kind = FILE_KINDS.get(Path(name.removesuffix(_GZIP)).suffix)
    if kind is None or (kind == "parquet" and name.endswith(_GZIP)):
        raise SourceError(
            f"{shown(path)} is not a kind of source that can be read: its name ends in none of "
            f"{', '.join(FILE_KINDS)} (all but parquet also with {_GZIP} after it), and it is no URL of a database. "
            "Nothing was read; rename the file, or write a URL such as postgresql://host/db#table.column."
        )
    return kind


def _split_url(text: str) -> tuple[str, str | None, str, str]:
    location, _, names = text.partition("#")
    parts = _split_parts(names)
    if len(parts) not in (2, 3):
        raise SourceError(
            f"{shown(without_password(text))} names no table and column. Nothing was read; write them after a #, "
            "such as postgresql://host/db#players.id, or #schema.players.id."
        )
    schema, table, column = [None, *parts][-3:]
    return location, schema, str(table), str(column)


def _split_parts(names: str) -> list[str]:
    parts, at = [], 0
    while match := _PART.match(names, at):
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        at = match.end()
        if names[at : at + 1] != ".":
            break
        at += 1
    return parts if at == len(names) else []
