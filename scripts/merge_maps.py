#!/usr/bin/env python3
"""Try a map on a schema: fill two databases by the map, draft, merge, and compare every row that came by other code.

    scripts/merge_maps.py canary/schema.sql examples/maps/canary.map --text kv_store.key_name=player.{id}.badge
    scripts/merge_maps.py main.sql examples/maps/rathena.map --rows 200
    scripts/merge_maps.py schema.sql my.map --database postgresql

The schema is a file for the database's own client (mariadb, psql, sqlite3). Columns that the map moves get ids of the
tables' rows, the others values of their types; --text says what a column of texts holds, with {id} for an id. Prints
what the draft says of the ids of the map, and how many rows are wrong after the merge. Exits with 1 if one is.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snowredis.merge.databases import Progress, TableColumn, Tables, checksum, open_database, parents_first
from snowredis.merge.dialects import transaction, two_databases
from snowredis.merge.draft import Draft
from snowredis.merge.evidence import Evidence
from snowredis.merge.map_file import Map, TableMap, as_text, load_map, undecided
from snowredis.merge.run import merge
from tests.support.databases import SERVERS
from tests.support.statements import execute

MOVED = ("id", "of", "flake", "top")
IGNORE = {"mariadb": "INSERT IGNORE INTO {}", "sqlite": "INSERT OR IGNORE INTO {}"}


def load(server: Any, name: str, schema: bytes) -> str:
    """Make a database with the tables of a schema; return its URL."""
    url: str = server.new_database(name)
    if server.name == "mariadb":
        command = ["mariadb", "-uroot", "-S", str(server.socket), "--force", name]
        schema = b"SET foreign_key_checks = 0, sql_mode = '';\n" + schema
    elif server.name == "postgresql":
        command = ["psql", "-q", "-h", str(server.directory), "-U", "postgres", name]
    else:
        command = ["sqlite3", url.removeprefix("sqlite:///")]
    done = subprocess.run(command, check=False, input=schema, capture_output=True)
    if done.returncode or done.stderr:
        print(f"   {name}: {done.stderr.decode(errors='replace').strip()[:300]}")
    return url


class Filler:
    """Rows of one database."""

    def __init__(self, catalog: Tables, the_map: Map, side: str, options: argparse.Namespace) -> None:
        self.catalog, self.map, self.side, self.options = catalog, the_map, side, options
        self.texts = dict(each.split("=", 1) for each in options.text)
        self.parents: dict[tuple[str, str], list[Any]] = {}

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table."""
        said, table = self.map.tables[name], self.catalog[name]
        # rows of the world and of the application are the same in both
        seed = name if said.rows != "copy" else name + self.side
        chance, found = random.Random(seed), []
        small = min((c.limit for c in table.written if c.name in table.primary and c.kind == "int"), default=1 << 62)
        for number in range(1, min(self.options.rows, max(1, small // 3)) + 1):
            row = (self._value(name, said, column, number, chance) for column in table.written)
            found.append(tuple(row))
        for at, column in enumerate(table.written):
            self.parents[name, column.name] = [row[at] for row in found]
        return found

    def _value(self, name: str, said: TableMap, column: TableColumn, number: int, chance: random.Random) -> Any:
        table = self.catalog[name]
        for key in table.foreign_keys:
            if column.name in key.columns and key.parent == name:
                return number
            if column.name in key.columns:
                values = self.parents.get((key.parent, key.target(column.name)))
                if values:
                    return chance.choice(values)
        rule, where = said.rule(column.name), f"{name}.{column.name}"
        if where in self.texts:
            return re.sub(r"\{id\}", lambda _: str(chance.randint(1, self.options.rows)), self.texts[where])
        if rule == "none":
            return 0 if column.kind == "int" else ""
        numbers = column.is_counter or table.primary[:1] == [column.name] or column.name in said.match
        if column.kind == "int":
            if numbers:
                return number
            # amounts have a size of their own
            size = random.Random(where).choice((3, 100, 10_000, 1_000_000))
            highest = self.options.rows if rule in (*MOVED, "sql") else size
            return chance.randint(0 if rule == "keep" else 1, max(1, min(highest, column.limit // 3)))
        if rule in MOVED:
            return str(chance.randint(1, self.options.rows))
        return self._other(said, column, number, chance)

    def _other(self, said: TableMap, column: TableColumn, number: int, chance: random.Random) -> Any:
        type_ = column.type.lower()
        if labels := re.findall(r"'((?:[^']|'')*)'", column.type) if type_.startswith(("enum", "set")) else []:
            return labels[chance.randrange(len(labels))]
        if column.kind == "other" and ", " in column.description:
            # an enum of PostgreSQL
            return chance.choice(re.sub(r"^.* (?=\S+, )", "", column.description).split(", "))
        if type_.startswith(("datetime", "timestamp")):
            return "2026-01-02 03:04:05"
        if type_.startswith("date"):
            return "2026-01-02"
        if type_.startswith(("time", "year")):
            return "12:00:00" if type_.startswith("time") else 2026
        if column.kind == "json":
            return "{}"
        if column.kind == "array":
            return "{}"
        if type_ in ("boolean", "uuid"):
            return "true" if type_ == "boolean" else f"{chance.getrandbits(128):032x}"
        if column.kind in ("float", "other"):
            return 2026 if type_.endswith("year") else chance.randint(1, 9)
        # a name in ten is in both databases
        owner = "" if column.name in said.texts.get("taken", {}) and number % 10 == 0 else self.side
        text = f"{owner}{'abcdefghij'[number % 10]}{number}"[: min(len(str(column.limit)), 30)]
        return text.encode() if column.kind == "bytes" and not type_.startswith("bit") else text


def fill(url: str, kind: str, filler: Filler) -> None:
    with transaction(open_database(url), writes=True) as database:
        ordered, _ = parents_first(filler.catalog, list(filler.map.tables))
        for name in ordered:
            table = filler.catalog[name]
            names = database.names([column.name for column in table.written])
            marks = ", ".join(["?" if kind == "sqlite" else "%s"] * len(table.written))
            start = IGNORE.get(kind, "INSERT INTO {}").format(f"{table.sql} ({names})")
            end = " ON CONFLICT DO NOTHING" if kind == "postgresql" else ""
            with contextlib.closing(database.driver.cursor()) as cursor:
                rows = filler.rows(name)
                if kind == "postgresql":
                    # a text is of any type
                    rows = [tuple(None if value is None else str(value) for value in row) for row in rows]
                cursor.executemany(f"{start} VALUES ({marks}){end}", rows)
        database.run("COMMIT")


def prepare(url: str, catalog: Tables) -> None:
    """Do in the first database what `merge run` asks for: tables with transactions, and no triggers."""
    for table in catalog.values():
        alter = [f"ALTER TABLE {table.sql} ENGINE = InnoDB, ROW_FORMAT = DEFAULT"] * bool(table.refusals_as_first)
        execute(url, *alter, *(f"DROP TRIGGER `{name}`" for name, _, _ in table.triggers))


def contents(url: str, catalog: Tables) -> dict[str, list[tuple[Any, ...]]]:
    with transaction(open_database(url)) as database:
        return {
            name: database.rows(f"SELECT {database.names([c.name for c in table.written])} FROM {table.sql}")  # noqa: S608
            for name, table in catalog.items()
        }


def expected(
    row: tuple[Any, ...], columns: list[TableColumn], said: TableMap, offsets: dict[str, int]
) -> tuple[Any, ...]:
    """Return what a row becomes; what only the database can compute as an ellipsis."""
    values: list[Any] = []
    for column, value in zip(columns, row, strict=True):
        rule, offset = said.rule(column.name), offsets[said.text("own", column.name)]
        if rule in ("of", "flake", "sql", "top") or said.text("taken", column.name):
            values.append(...)
        elif rule == "id" and str(value).isdigit() and int(value) > 0:
            values.append(type(value)(int(value) + offset))
        else:
            values.append(value)
    return tuple(map(str, values))


def wrong_rows(name: str, catalog: Tables, the_map: Map, offsets: dict[str, int], rows: tuple[Any, Any, Any]) -> int:
    """Return how many rows of a table are not what they should be; *rows*: before, after, and of the second."""
    said, columns = the_map.tables[name], catalog[name].written
    before, after = (Counter(map(str, each[name])) for each in rows[:2])
    lost = 0 if said.lists.get("top") else sum((before - after).values())
    if said.rows == "skip":
        return lost + sum((after - before).values())
    whole = {str(row): row for row in rows[1][name]}
    is_open = [c.name for c in columns if said.rule(c.name) in (*MOVED[1:], "sql") or said.text("taken", c.name)]
    came = Counter(
        tuple("Ellipsis" if column.name in is_open else str(value) for column, value in zip(columns, row, strict=True))
        for row in (whole[text] for text in (after - before).elements())
    )
    wanted = Counter(expected(row, columns, said, offsets) for row in rows[2][name])
    missing = 0 if said.rows == "first" or said.match else sum((wanted - came).values())
    return lost + missing + sum((came - wanted).values())


def judge(draft: Map, the_map: Map, seconds: float) -> None:
    """Print what a draft says of the ids of a map."""
    found: Counter[str] = Counter()
    missed = list[str]()
    for name, said in the_map.tables.items():
        for column, rule in said.rules.items() if said.rows == "copy" else ():
            guess = draft.tables[name].rule(column)
            if rule in (*MOVED, "sql"):
                is_asked = guess == "ask" or draft.tables[name].rows == "?"
                found["guessed" if guess in MOVED else "asked" if is_asked else "missed"] += 1
                missed += [f"{name}.{column}"] * (guess not in MOVED and not is_asked)
            elif guess in MOVED:
                found["wrong"] += 1
    lines = sum(1 for line in as_text(the_map, {}, ()).splitlines() if line) / len(the_map.tables)
    print(
        f"   draft: {found['guessed']} ids guessed, {found['asked']} asked, {found['missed']} missed, {found['wrong']} "
        f"wrongly guessed; {undecided(draft)} undecided; {seconds:.1f} s; the map has {lines:.1f} lines a table"
    )
    if missed:
        print(f"   missed: {', '.join(missed)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schema", type=Path)
    parser.add_argument("map", type=Path)
    parser.add_argument("--database", choices=SERVERS, default="mariadb")
    parser.add_argument("--rows", type=int, default=60, help="of each table (default: 60)")
    parser.add_argument("--text", action="append", default=[], metavar="TABLE.COLUMN=TEXT")
    options = parser.parse_args()
    with SERVERS[options.database]() as server, tempfile.TemporaryDirectory() as directory:
        urls = load(server, "sidea", options.schema.read_bytes()), load(server, "sideb", options.schema.read_bytes())
        the_map = load_map(options.map)
        with transaction(open_database(urls[0])) as database:
            catalog = database.tables
        if options.database == "mariadb":
            prepare(urls[0], catalog)
        for url, side in zip(urls, "AB", strict=True):
            fill(url, options.database, Filler(catalog, the_map, side, options))
        before, second = contents(urls[0], catalog), contents(urls[1], catalog)
        began_s = time.monotonic()
        with two_databases(*urls) as databases:
            judge(Draft(Evidence(databases, Progress())).map(), the_map, time.monotonic() - began_s)
        the_map.head["schema"] = checksum(catalog)
        path = Path(directory) / "try.map"
        path.write_text(as_text(the_map, {}, ()))
        began_s = time.monotonic()
        result = merge(path, (urls[0], urls[1]), Progress())
        after, unchanged = contents(urls[0], catalog), contents(urls[1], catalog) == second
        rows = (before, after, second)
        wrong = {name: wrong_rows(name, catalog, the_map, result.offsets, rows) for name in the_map.tables}
    doubts = sum(word == "look again" for word, _ in result.verdict)
    print(
        f"   {': '.join(result.verdict[0])}; in {time.monotonic() - began_s:.1f} s, {sum(wrong.values())} wrong, "
        f"{doubts} doubts; the second database is {'as it was' if unchanged else 'CHANGED'}"
    )
    for name, count in wrong.items():
        if count:
            print(f"   {name}: {count} wrong rows")
    return int(bool(sum(wrong.values())) or not unchanged)


if __name__ == "__main__":
    sys.exit(main())
