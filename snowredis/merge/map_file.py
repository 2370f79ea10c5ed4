"""The map of a merge: a file of TOML in which every table and every column stands once.

    [characters]
    rows = "copy"                         # the other words are "first" and "skip"
    id   = ["guid", "guild_id"]           # positive numbers get the offset; 0 and NULL stay
    keep = ["name", "level"]              # values that stay
    none = ["mount_id"]                   # named like an id, without values when the map was made
    ask  = ["place"]                      # undecided, and refused
    taken.name = "CONCAT(name, '-2')"     # what a name becomes that the first database has

The lists are by rule, so no name of a column is a word of the format. Other words: flake (ids of a layout), top (the
next number of a counter), of (id of a table with match), sql (an expression), match (columns that name a row), key (of
"first" in a table without one), own (a group with an offset of its own), sure (confirmed against the evidence).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from snowredis.cli.output import printable
from snowredis.errors import count, shown
from snowredis.merge import MergeError
from snowredis.merge.databases import HEAD, ROWID, ForeignKey, Table, TableColumn, Tables, checksum, obstacles

ROWS = ("copy", "first", "skip")
# words whose value is a list of columns; each says what happens to the values
RULES = ("id", "flake", "top", "keep", "none", "ask")
_LISTS = ("match", "key", *RULES, "sure")
# words whose value is one text for each column; the first two are rules, too
_TEXTS = ("of", "sql", "taken", "own")
UNDECIDED = "?"
# comments at the top of a draft
_TOP = (
    'rows: "copy", "first" (a row whose key the first database has stays away, and ids stay), or "skip"',
    "id: positive numbers get the offset.  of: id of a table with match.  sql: an expression; :offset, :of(TABLE, x)",
    "keep: stays.  none: named like an id, without values in both databases; run refuses when there are some",
    "sure: looks like another rule, and is right.  ask: undecided",
    "Read every line, move columns until it is right, then write reviewed = true",
)

# in expressions: the offset, or that of a group of own, and the id of a table with match
OFFSET = re.compile(r":offset(?:_(\w+))?\b")
# an argument may have functions in functions
_NESTED = functools.reduce(lambda deep, _: rf"(?:[^()]|\({deep}*\))", range(4), "[^()]")
OF = re.compile(rf":of\(\s*([^,()]+?)\s*,\s*({_NESTED}+?)\s*\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Move(NamedTuple):
    """Movement of the values of a column; the two ends of a foreign key have the same.

    Attributes:
        rule: "keep", "id", "flake", "of", or what only the database can say: "sql", "ask".
        by: the group of the offset, the table with match, or the expression.
    """

    rule: str
    by: str = ""

    def written(self, column: str) -> str:
        """Return what a map says of a column that moves so."""
        text = {"of": self.by, "sql": "…"}.get(self.rule)
        own = f', own.{column} = "{self.by}"' if self.by else ""
        return f'{self.rule}.{column} = "{text}"' if text else f'{self.rule} = ["{column}"]{own}'


@dataclass
class TableMap:
    """Rules of a map for one table.

    Attributes:
        rows: which rows come.
        lists: columns by the words of lists.
        texts: a text for each column, by the other words.
    """

    rows: str = "copy"
    lists: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def rules(self) -> dict[str, str]:
        """The rule of each column."""
        found = {column: word for word in RULES for column in self.lists.get(word, [])}
        return found | {column: word for word in ("of", "sql") for column in self.texts.get(word, {})}

    def rule(self, column: str) -> str:
        """Return the rule of a column; those that the map leaves out stay."""
        return self.rules.get(column, "keep")

    def text(self, word: str, column: str) -> str:
        """Return what *word* says of a column; empty: nothing."""
        return self.texts.get(word, {}).get(column, "")

    @property
    def match(self) -> list[str]:
        """The columns that name a row; only where rows are copied."""
        return self.lists.get("match", []) if self.rows == "copy" else []


@dataclass
class Map:
    """A map.

    Attributes:
        head: the words at its top.
        checksum: of the file.
        ids: of each table: the column with the id of a row; None if that is not clear, or the ids stay.
    """

    head: dict[str, Any]
    tables: dict[str, TableMap]
    checksum: str = ""
    ids: dict[str, str | None] = field(default_factory=dict)

    def of(self, *rows: str) -> list[str]:
        """Return the tables with one of these words for their rows."""
        return [name for name, table in self.tables.items() if table.rows in rows]

    def move(self, name: str, column: str) -> Move:
        """Return how a column moves."""
        said = self.tables[name]
        if said.match and column == self.ids.get(name):
            return Move("of", name)
        rule = "keep" if said.rows == "skip" else said.rule(column)
        rule = {"none": "keep", "top": "id"}.get(rule, rule)
        return Move(rule, said.text(rule if rule in ("of", "sql") else "own", column))

    def find_ids(self, tables: Tables) -> None:
        """Find in each table the column with the id of a row."""
        self.ids = {name: _id_of(said, tables[name]) for name, said in self.tables.items() if name in tables}


def _id_of(said: TableMap, table: Table) -> str | None:
    columns, matched = table.columns, table.primary if said.match else []
    ids = [column for column, rule in said.rules.items() if rule in ("id", "flake") and column in columns]
    # the rowid of SQLite moves beside the id; matched rows may have a key that stays, such as a UUID
    ids = [column for column in ids if columns[column].type != ROWID] or ids or matched
    keys = [column for column in ids if columns[column].is_counter or [column] in table.uniques]
    found = [column for column in keys if [column] == table.primary] or keys or ids
    return found[0] if len(found) == 1 else None


def load_map(path: Path) -> Map:
    """Read a map.

    Raises:
        MergeError: no such file, no TOML, or a word that is none of a map.
    """
    try:
        data = path.read_bytes()
        values = tomllib.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise MergeError(
            f"{path} is not a map: {error}. Nothing was read; correct that, or write one with snowredis merge draft."
        ) from None
    head = {word: value for word, value in values.items() if not isinstance(value, dict)}
    problems = [f"{word} is no word at the top of a map" for word in head if word not in HEAD]
    tables = {}
    for name, said in values.items():
        if isinstance(said, dict):
            problems += [f"[{name}] {text}" for text in _malformed(said)]
            lists = {word: said[word] for word in _LISTS if word in said}
            texts = {word: said[word] for word in _TEXTS if word in said}
            tables[name] = TableMap(said.get("rows", ""), lists, texts)
    refuse(problems)
    return Map(head, tables, hashlib.blake2b(data, digest_size=8).hexdigest())


def _malformed(said: Mapping[str, object]) -> Iterator[str]:
    for word, value in said.items():
        if word in _LISTS:
            if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                yield f'{word} = {shown(value)}: write a list of columns, such as {word} = ["a"]'
        elif word in _TEXTS:
            if not (isinstance(value, dict) and all(isinstance(each, str) for each in value.values())):
                yield f'{word} = {shown(value)}: write a text for each column, such as {word}.a = "…"'
        elif word != "rows":
            yield f"{word} is no word of a map: its words are rows, {', '.join((*_LISTS, *_TEXTS))}"


def refuse(problems: Sequence[str]) -> None:
    """Refuse a merge before its first row, if there are problems."""
    if problems:
        raise MergeError(f"{count(len(problems), 'refusal')}. Nothing was written", problems)


# --- what the map alone can be wrong in ------------------------------------------------------------------


def problems_of(the_map: Map, first: Tables, second: Tables, kind: str) -> Iterator[str]:
    """Yield everything that is wrong in a map of these tables, each with what to write."""
    the_map.find_ids(first)
    if the_map.head.get("reviewed") is not True:
        yield "the map is not reviewed: read every line, then write reviewed = true"
    yield from _changed_tables(the_map, first, second)
    for name, said in ((name, said) for name, said in the_map.tables.items() if name in first and name in second):
        if said.rows not in ROWS:
            yield f'[{name}] rows = "{said.rows}": write "copy", "first" or "skip"'
        elif said.rows != "skip":
            found = (*_wrong_lists(said, first[name]), *_wrong_texts(the_map, name))
            yield from (f"[{name}] {text}" for text in found)
            for column, rule in said.rules.items():
                if about := first[name].columns.get(column):
                    yield from (f"[{name}] {text}" for text in _wrong_rule(rule, about, kind))
            for key in first[name].foreign_keys:
                yield from (f"[{name}] {text}" for text in _apart(the_map, name, key))
            yield from obstacles(name, first[name], second[name])


def _changed_tables(the_map: Map, first: Tables, second: Tables) -> Iterator[str]:
    for name in {**the_map.tables, **first, **second}:
        said, where = the_map.tables.get(name), ["first"] * (name in first) + ["second"] * (name in second)
        if not where:
            yield f"[{name}] is in the map, and there is no such table: take it out"
        elif not where[1:] and not (said and said.rows == "skip"):
            yield f'[{name}] is only in the {where[0]} database: create it in the other one, or write rows = "skip"'
        elif said is None:
            yield f'[{name}] is not in the map: write it with its columns, and rows = "copy", "first" or "skip"'
    if (given := the_map.head.get("schema")) != (now := checksum(first)):
        yield (
            f"the columns are not those that the map was made for: a table, a column or a type has changed. Look at "
            f'what changed, then write schema = "{now}" (the map has {shown(given)})'
        )


def _wrong_lists(said: TableMap, table: Table) -> Iterator[str]:
    """Yield which columns are not there once, and what is left open."""
    named = [column for word in RULES for column in said.lists.get(word, [])]
    named += [column for word in ("of", "sql") for column in said.texts.get(word, {})]
    for column in (column for column, times in Counter(named).items() if times > 1):
        yield f"{column} stands there twice: leave it in one list"
    for column in said.lists.get("ask", []):
        yield f"{column} is undecided (ask): move it to id, keep or sql"
    for column in (column.name for column in table.written if column.name not in named):
        yield f"{column} is not in the map: write it into id or keep"
    every = [column for columns in (*said.lists.values(), *said.texts.values()) for column in columns]
    for column in dict.fromkeys(column for column in every if column not in table.columns):
        yield f"there is no column {column}: take it out"
    if said.rows == "copy" and said.lists.get("top"):
        yield f'top = {json.dumps(said.lists["top"])}: only of rows = "first", a table of counters that both have'
    if said.rows == "first" and not (said.lists.get("key") or table.uniques or said.lists.get("top")):
        yield 'rows = "first": the table has no key. Write key = […], the columns that name a row'


def _wrong_texts(the_map: Map, name: str) -> Iterator[str]:
    """Yield which texts for columns are open, or name a group or a table that is none."""
    said = the_map.tables[name]
    groups = {group for each in the_map.tables.values() for group in each.texts.get("own", {}).values()}
    for word, column, text in ((word, *each) for word, texts in said.texts.items() for each in texts.items()):
        if word == "own" and the_map.move(name, column).rule not in ("id", "of"):
            yield f'own.{column} = "{text}": the column does not move. Move it to id, or take own out'
        for group in {*OFFSET.findall(text)} - {"", *groups}:
            yield f"{word}.{column}: no column has own = {group}, so there is no :offset_{group}"
        for target in [text] if word == "of" else [each for each, _ in OF.findall(text)]:
            is_matched = word != "of" or (target in the_map.tables and the_map.tables[target].match)
            if not is_matched or not the_map.ids.get(target):
                what = "no table with match = […]" if word == "of" else "no table with one key in id or flake"
                yield f"{word}.{column}: {target} is {what}; ids of other tables are in id, or + :offset"
    if said.match and the_map.ids[name] is None:
        yield "match: which column is the id of such a row? Leave one column in id that is a key by itself"


def _wrong_rule(rule: str, column: TableColumn, kind: str) -> Iterator[str]:
    name = column.name
    if column.is_generated:
        yield f"{name} is computed by the database: take it out"
    movable = ("int", "text", "bytes", "other") if kind == "sqlite" or rule == "of" else ("int", "text")
    if rule in ("id", "of", "flake", "top") and column.kind not in movable:
        yield f'{name} is {column.type}, which holds no number: write sql.{name} = "…" instead of {rule}'
    if column.type == ROWID and rule != "id":
        yield f"{ROWID} can only be in id"


def _apart(the_map: Map, name: str, key: ForeignKey) -> Iterator[str]:
    """Yield why a foreign key would lead to another row: its two ends do not move alike."""
    said, its = the_map.tables[name], the_map.tables.get(key.parent)
    for column, target in zip(key.columns, key.parents, strict=True) if its else ():
        mine, right = the_map.move(name, column), the_map.move(key.parent, target)
        if its and its.text("taken", target) and mine.rule != "sql":
            yield (
                f"{column} refers to {key.parent}.{target}, whose taken names change: the key would lead to a row of "
                f'the first database; write sql.{column} = "…", or match = ["{target}"] for {key.parent}'
            )
        # what an expression does is seen when the rows have come
        if its and mine != right and not {mine.rule, right.rule} & {"sql", "ask"}:
            stays = " (rows of that table stay away)" if its.rows == "skip" else " (with match)" if its.match else ""
            yield (
                f"{column} is in {said.rule(column)}, and refers to {key.parent}.{target}, which is in "
                f"{its.rule(target)}{stays}: both must move alike, or the key leads to another row; write "
                f"{right.written(column)}"
            )


# --- the map as text -------------------------------------------------------------------------------------


def as_text(the_map: Map, notes: Mapping[str, Sequence[str]], about: Iterable[str]) -> str:
    """Return the file of a map, with its *notes* by table as comments; *about*: comments of the whole."""
    lines = [f"# {printable(line)}" for line in (*_TOP, *about)]
    lines += [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in the_map.head.items()]
    for name, said in the_map.tables.items():
        lines += ["", f"[{_key(name)}]", *(f"# {printable(note)}" for note in notes.get(name, ()))]
        lines.append(f"rows = {_quoted(said.rows)}")
        lists = ((word, said.lists.get(word)) for word in _LISTS)
        lines += [f"{word:<4} = [{', '.join(map(_quoted, columns))}]" for word, columns in lists if columns]
        for word in _TEXTS:
            lines += [f"{word}.{_key(column)} = {_quoted(text)}" for column, text in said.texts.get(word, {}).items()]
    return "\n".join(lines) + "\n"


def family_of(column: str) -> str:
    """Return what a name has in common with those that differ only in a number at their end."""
    return re.sub(r"\d+$", "#", column)


def families(columns: Iterable[str]) -> list[str]:
    """Return names with those that differ only in a number at their end as one: item0 to item18."""
    groups: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        groups[family_of(column)].append(column)
    return [f"{names[0]} to {names[-1]}" if len(names) > 2 else ", ".join(names) for names in groups.values()]


def undecided(the_map: Map) -> int:
    """Return how many things of a map are open, a family of columns as one."""
    tables = the_map.tables.values()
    return sum((said.rows == UNDECIDED) + len(families(said.lists.get("ask", []))) for said in tables)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)
