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

import hashlib
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.catalog import HEAD, ROWID, Catalog, ForeignKey

ROWS = ("copy", "first", "skip")
# words whose value is a list of columns; each says what happens to the values
RULES = ("id", "flake", "top", "keep", "none", "ask")
_LISTS = ("match", "key", *RULES, "sure")
# words whose value is one text for each column; the first two are rules, too
_TEXTS = ("of", "sql", "taken", "own")
UNDECIDED = "?"
# in expressions: the offset, or that of a group of own, and the id of a table with match
OFFSET = re.compile(r":offset(?:_(\w+))?\b")
OF = re.compile(r":of\(\s*([^,()]+?)\s*,\s*((?:[^()]|\([^()]*\))+?)\s*\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STAY = ("keep", "none")


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
    """

    head: dict[str, Any]
    tables: dict[str, TableMap]
    checksum: str = ""

    def of(self, *rows: str) -> list[str]:
        """Return the tables with one of these words for their rows."""
        return [name for name, table in self.tables.items() if table.rows in rows]

    def id_of(self, name: str, catalog: Catalog) -> str | None:
        """Return the column with the id of a row that is matched; None if that is not clear."""
        table = catalog.tables[name]
        ids = [column for column, rule in self.tables[name].rules.items() if rule in ("id", "flake")]
        # the rowid of SQLite moves beside the id
        ids = [column for column in ids if column != ROWID] or ids
        keys = [column for column in ids if table.columns[column].is_counter or [column] in table.uniques]
        found = [column for column in keys if [column] == table.primary] or keys or ids
        return found[0] if len(found) == 1 else None


def load_map(path: Path) -> Map:
    """Read a map.

    Raises:
        MergeError: no such file, no TOML, or a word that is none of a map.
    """
    try:
        data = path.read_bytes()
        values = tomllib.loads(data.decode())
    except (OSError, ValueError) as error:
        raise MergeError(
            f"{path} is not a map: {error}. Nothing was read; write one with snowredis merge draft."
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
    if problems:
        raise refusal(problems)
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


def refusal(problems: Sequence[str]) -> MergeError:
    """Return the error for a merge that is refused before its first row."""
    count = "1 refusal" if len(problems) == 1 else f"{len(problems)} refusals"
    return MergeError(f"{count}. Nothing was written", problems)


# --- what the map alone can be wrong in ------------------------------------------------------------------


def problems_of(the_map: Map, catalog: Catalog, second: Catalog) -> Iterator[str]:
    """Yield everything that is wrong in a map of these tables, each with what to write."""
    if the_map.head.get("reviewed") is not True:
        yield "the map is not reviewed: read every line, then write reviewed = true"
    yield from _changed_tables(the_map, catalog, second)
    for name, said in the_map.tables.items():
        if said.rows not in ROWS:
            yield f'[{name}] rows = "{said.rows}": write "copy", "first" or "skip"'
        elif name in catalog.tables and said.rows != "skip":
            yield from (f"[{name}] {text}" for text in _problems_of_table(the_map, name, catalog))


def _changed_tables(the_map: Map, catalog: Catalog, second: Catalog) -> Iterator[str]:
    for name in second.tables.keys() - catalog.tables.keys():
        if name not in the_map.tables or the_map.tables[name].rows != "skip":
            yield f'[{name}] is only in the second database: create it in the first one, or write rows = "skip"'
    for name in catalog.tables.keys() - the_map.tables.keys():
        yield f'[{name}] is not in the map: write it with its columns, and rows = "copy", "first" or "skip"'
    for name in the_map.tables.keys() - catalog.tables.keys() - second.tables.keys():
        yield f"[{name}] is in the map, and there is no such table: take it out"
    if (given := the_map.head.get("schema")) != (now := catalog.checksum()):
        yield (
            f"the columns are not those that the map was made for: a table, a column or a type has changed. Look at "
            f'what changed, then write schema = "{now}" (the map has {shown(given)})'
        )


def _problems_of_table(the_map: Map, name: str, catalog: Catalog) -> Iterator[str]:
    said, table = the_map.tables[name], catalog.tables[name]
    rules, written = said.rules, [column.name for column in table.written]
    named = [column for word in RULES for column in said.lists.get(word, [])]
    named += [column for word in ("of", "sql") for column in said.texts.get(word, {})]
    for column in dict.fromkeys(column for column in named if named.count(column) > 1):
        yield f"{column} stands there twice: leave it in one list"
    for column in said.lists.get("ask", []):
        yield f"{column} is undecided (ask): move it to id, keep or sql"
    for word, columns in said.texts.items():
        for column in (column for column, text in columns.items() if text == UNDECIDED):
            yield f'{word}.{column} is undecided: write an expression for the new name, or match = ["{column}"]'
    for column in (column for column in written if column not in rules):
        yield f"{column} is not in the map: write it into id or keep"
    every = [column for columns in (*said.lists.values(), *said.texts.values()) for column in columns]
    for column in dict.fromkeys(column for column in every if column not in table.columns):
        yield f"there is no column {column}: take it out"
    for column, rule in rules.items():
        yield from _problem_of_column(rule, column, said, table.columns, catalog)
    groups = {group for table in the_map.tables.values() for group in table.texts.get("own", {}).values()}
    targets = [(f"of.{column}", target) for column, target in said.texts.get("of", {}).items()]
    for word in ("sql", "taken"):
        for column, text in said.texts.get(word, {}).items():
            targets += [(f"{word}.{column}", target) for target, _ in OF.findall(text)]
            for group in OFFSET.findall(text):
                if group and group not in groups:
                    yield f"{word}.{column}: no column has own = {group}, so there is no :offset_{group}"
    for where, target in targets:
        if target not in the_map.tables or not the_map.tables[target].match:
            yield f"{where}: {target} is no table with match = […]; ids of other tables are in id, or + :offset"
    if said.match and the_map.id_of(name, catalog) is None:
        yield "match: which column is the id of such a row? Leave one column in id that is a key by itself"
    if said.rows == "first" and not (said.lists.get("key") or table.uniques or said.lists.get("top")):
        yield 'rows = "first": the table has no key. Write key = […], the columns that name a row'
    for key in table.foreign_keys:
        yield from _apart(the_map, name, key, catalog)


def _problem_of_column(
    rule: str, column: str, said: TableMap, columns: Mapping[str, Any], catalog: Catalog
) -> Iterator[str]:
    known = columns.get(column)
    if known is None:
        return
    if known.is_generated:
        yield f"{column} is computed by the database: take it out"
    movable = ("int", "text") if catalog.dialect.name != "sqlite" else ("int", "text", "bytes", "other")
    if rule in ("id", "of", "flake", "top") and known.kind not in movable:
        yield f'{column} is {known.type}, which holds no number: write sql.{column} = "…" instead of {rule}'
    if column == ROWID and rule != "id":
        yield f"{ROWID} can only be in id"
    if said.text("taken", column) and rule not in ("keep", "sql"):
        yield f"taken.{column}: the column must be in keep"


def _apart(the_map: Map, name: str, key: ForeignKey, catalog: Catalog) -> Iterator[str]:
    """Yield why a foreign key would lead to another row: its two ends do not move alike."""
    said, its = the_map.tables[name], the_map.tables.get(key.parent)
    if its is None:
        return
    for column, target in zip(key.columns, key.parents, strict=True):
        mine, right = said.rule(column), its.rule(target) if its.rows != "skip" else "keep"
        if its.match and target == the_map.id_of(key.parent, catalog):
            right = "of"
        of = said.text("of", column)
        is_same = mine == right or {mine, right} <= {*_STAY}
        if right == "of":
            is_same = is_same and of == key.parent
        elif its.rows == "copy" or mine not in _STAY:
            is_same = is_same and said.text("own", column) == its.text("own", target)
        # what an expression does is seen when the rows have come
        if not is_same and "sql" not in (mine, right) and "ask" not in (mine, right):
            wanted = f'of.{column} = "{key.parent}"' if right == "of" else f'{right} = ["{column}"]'
            if right not in _STAY and its.text("own", target):
                wanted += f', own.{column} = "{its.text("own", target)}"'
            stays = " (rows of that table stay away)" if its.rows == "skip" else ""
            yield (
                f"{column} is in {mine}, and refers to {key.parent}.{target}, which is in {its.rule(target)}{stays}: "
                f"both must move alike, or the key leads to another row; write {wanted}"
            )


# --- the map as text -------------------------------------------------------------------------------------


def as_text(the_map: Map, notes: Mapping[str, Sequence[str]], top: Iterable[str]) -> str:
    """Return the file of a map, with its *notes* by table as comments; *top*: comments of the whole."""
    lines = [f"# {_comment(line)}" for line in top]
    lines += [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in the_map.head.items()]
    for name, said in the_map.tables.items():
        lines += ["", f"[{_key(name)}]", *(f"# {_comment(note)}" for note in notes.get(name, ()))]
        lines.append(f"rows = {_quoted(said.rows)}")
        for word in _LISTS:
            if columns := said.lists.get(word):
                lines.append(f"{word:<4} = [{', '.join(map(_quoted, columns))}]")
        for word in _TEXTS:
            lines += [f"{word}.{_key(column)} = {_quoted(text)}" for column, text in said.texts.get(word, {}).items()]
    return "\n".join(lines) + "\n"


def families(columns: Iterable[str]) -> list[str]:
    """Return names with those that differ only in a number at their end as one: item0 to item18."""
    groups: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        groups[re.sub(r"\d+$", "#", column)].append(column)
    return [f"{names[0]} to {names[-1]}" if len(names) > 2 else ", ".join(names) for names in groups.values()]


def undecided(the_map: Map) -> int:
    """Return how many things of a map are open, a family of columns as one."""
    count = 0
    for said in the_map.tables.values():
        count += len(families(said.lists.get("ask", []))) + (said.rows == UNDECIDED)
        count += list(said.texts.get("taken", {}).values()).count(UNDECIDED)
    return count


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _comment(text: str) -> str:
    """Return a text as one line of a comment: names and values of others may have any characters."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
