"""Drafts: the guesses from the values of two databases, and the questions that stay open."""

import base64
import json
import struct
import tomllib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from snowredis.merge.map_file import TableMap
from tests.merge.conftest import Cli, Two, empty
from tests.support.statements import Rows, Tables, rows_of

Drafted = Callable[..., str]
PEOPLE = "people (id INTEGER PRIMARY KEY, name TEXT)"
# ids of people
IDS = range(1, 61)


def people(side: str) -> Iterator[str]:
    # no digits: a name with a number in it is asked about
    letters = str.maketrans("0123456789", "abcdefghij")
    return (f"{i}, '{side} {str(i).translate(letters)}'" for i in IDS)


@pytest.fixture
def draft(drafted: Drafted) -> Drafted:
    """Draft a map of people, other tables and one with these columns; return the lines of that table."""

    def run(columns: str, rows: Rows, kind: str = "sqlite", others: Tables | None = None) -> str:
        return drafted(kind, {PEOPLE: people, **(others or {}), f"t ({columns})": rows}).split("[t]")[1]

    return run


def asked(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("ask ")]
    return json.loads(lines[0].partition("=")[2]) if lines else []


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


# a value with the id -> where in it the draft finds the id
INSIDE: dict[str, tuple[Callable[[int], str], str]] = {
    "text": (lambda i: f"'player.{i}.badge'", "number 1"),
    "behind a letter": (lambda i: f"'p{i},p{i % 7 + 1}'", "number 1 after p"),
    "behind one of two words": (
        lambda i: f"'{'npc' if i % 4 else 'player'}:{i % 4 * 7000 + i}'",
        "number 1 after player",
    ),
    "with zeros before it": (lambda i: f"'INV-{i:06d}'", "number 1"),
    "json in json": (lambda i: f"'{json.dumps({'a': json.dumps({'who': float(i)})})}'", "$.a $.who"),
    "behind a time and an address": (lambda i: f"'2026-01-02 03:04:05 from 10.0.0.7: {i} left'", "number 1"),
    "another sign": (lambda i: f"'of|{i}|x'", "number 1"),
    "bytes with digits": (lambda i: f"CAST('{i},{i % 7 + 1}' AS BLOB)", "number 1"),
    "bytes": (lambda i: f"x'{struct.pack('<I', i).hex()}'", "bytes 1 to 4, the lowest first"),
    "bytes behind a byte": (lambda i: f"x'01{struct.pack('>I', i).hex()}02'", "bytes 2 to 5, the highest first"),
    "json": (lambda i: f'\'{{"a": {{"who": {i}}}}}\'', "$.a.who"),
    "a list in json": (lambda i: f"'[{i}, {i % 9 + 1}]'", "$[]"),
    "base64 with all of its signs": (
        lambda i: f"'{base64_of(b'>?>???' + struct.pack('<I', i) + b'??')}'",
        "base64 bytes 7 to 10, the lowest first",
    ),
    "base64": (lambda i: f"'{base64_of(f'p:{i}'.encode())}'", "base64 number 1"),
    "keys of json": (lambda i: f"'{{\"{i}\": true}}'", "$, keys"),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_ids_inside_of_values_are_asked_about_with_the_place(draft: Drafted, kind: str) -> None:
    value, place = INSIDE[kind]
    text = draft(f"s TEXT, v {'BLOB' if 'bytes' in kind else 'TEXT'}", lambda s: (f"'{s}', {value(i)}" for i in IDS))
    assert asked(text) == ["v"]
    assert f"ids of people.id inside ({place})" in text


class Guess(NamedTuple):
    """Draft of one table that stands beside people.

    Attributes:
        asked: columns that are undecided; None: any.
        says: parts of the draft of the table.
    """

    columns: str
    rows: Rows
    asked: tuple[str, ...] | None = None
    says: tuple[str, ...] = ()


FAMILY = (1, 7, 11, 13, 17, 19)
GUESSES = {
    "ids of some rows only, beside the name of their table, are asked about": Guess(
        "s TEXT, kind TEXT, sender INTEGER",
        lambda s: (f"'{s}', '{kind}', {i + more}" for i in IDS for kind, more in (("player", 0), ("npc", 90_000))),
        ("sender",),
        ("all where kind is player",),
    ),
    "texts that only look like numbers or JSON are no matter": Guess(
        "s TEXT, v TEXT", lambda s: (f"'{s}', '{text}'" for text in ("²", "[" * 9000, '{"²": 1e999}')), ()
    ),
    "a family of columns is one line and one question": Guess(
        f"s TEXT, {', '.join(f'item{n} INTEGER' for n in range(6))}",
        lambda s: (f"'{s}', {', '.join(str(i * n % 60 + 1) for n in FAMILY)}" for i in range(60)),
        tuple(f"item{n}" for n in range(6)),
        ("# item0 to item5: ",),
    ),
    "a number that is named like an amount is asked about if it ends where ids end": Guess(
        "at INTEGER, type INTEGER, s TEXT",
        lambda s: (f"{1_700_000_000 + i}, {i % 60 + 1}, '{s}'" for i in range(200)),
        ("type",),
    ),
    # dense ids and few different values: most rows of both are the same by chance
    "rows that only look alike are never left away by a guess": Guess(
        "id INTEGER PRIMARY KEY, place TEXT",
        lambda _: (f"{i}, '{'bag' if i % 5 else 'shop'}'" for i in range(1, 90)),
        says=('rows = "?"',),
    ),
    "rows of the application are those of the first": Guess(
        "name TEXT PRIMARY KEY, value TEXT",
        lambda _: (f"'key{i}', 'value{i}'" for i in range(20)),
        says=('rows = "first"', "20 of 20 rows are the same in both databases"),
    ),
    "the same things under other ids are asked about": Guess(
        "id INTEGER PRIMARY KEY, street TEXT, owner TEXT",
        lambda s: (f"{i}, 'Street {chr(64 + i)}', '{s}{i}'" for i in range(1, 27)),
        says=('rows = "?"', 'match = ["street"]'),
    ),
    "an id that is stored as a float is one": Guess(
        "s TEXT, people_id REAL, height REAL",
        lambda s: (f"'{s}', {i}.0, {i}.5" for i in IDS),
        (),
        ('id   = ["people_id"]',),
    ),
    "a key that is named after something outside is asked about": Guess(
        "accountId INTEGER PRIMARY KEY, level INTEGER",
        lambda s: (f"{i}, {i * (7 if s == 'A' else 9)}" for i in range(1, 30)),
        ("accountId",),
        ("a key by itself: an id of this table, or of something outside?",),
    ),
    "a column that is called as a table is asked about even if it has few values": Guess(
        "s TEXT, people INTEGER, speed INTEGER", lambda s: (f"'{s}{i}', {i * 8}, {i * 8}" for i in (1, 3, 5)), ("people",)
    ),
    "bytes are no names that both databases have": Guess(
        "id INTEGER PRIMARY KEY, name TEXT, n INT",
        lambda s: ("1, x'6964', 7", "2, 'I', 7", "3, 'both', 7", *(f"{i}, '{s}{i}', 7" for i in range(4, 61))),
        says=("2 rows of each database with the same name, such as 'both'; no key forbids it",),
    ),
    "keys of numbers may have bytes and NULL": Guess(
        "id INT, n INT, PRIMARY KEY (n, id)", lambda s: ("1, 1", "x'ff', 2", f"NULL, {ord(s)}")
    ),
    "a column called after no table is asked about": Guess(
        "s TEXT, building_id INTEGER", lambda s: (f"'{s}', {i}" for i in range(1, 41)), ("building_id",)
    ),
    "a column called after no table is an id if it has nearly all of a table": Guess(
        "s TEXT, building_id INTEGER", lambda s: (f"'{s}', {i}" for i in IDS), says=('id   = ["building_id"]',)
    ),
    "a column called by what a row is to another is an id": Guess(
        "s TEXT, owner_id INTEGER", lambda s: (f"'{s}', {i}" for i in range(1, 41)), says=('id   = ["owner_id"]',)
    ),
    "places of a world are no counted ids": Guess(
        "pos INTEGER PRIMARY KEY, s TEXT", lambda s: (f"{i * 4096 - 90_000}, '{s}'" for i in IDS), ("pos",)
    ),
    "a number within a key is an id if it is called as a table, though 0 is among them": Guess(
        "people_id INT, n INT, s TEXT, PRIMARY KEY (people_id, n)",
        lambda s: (f"{i - 1}, {i * 7}, '{s}'" for i in IDS),
        says=('id   = ["people_id"]',),
    ),
    "addresses have no ids": Guess(
        "s TEXT, ip TEXT, place TEXT", lambda s: (f"'{s}', '10.0.3.{i}', '10.0.300.{i}'" for i in IDS), ("place",)
    ),
    "tables of keys with texts are not called numbers": Guess(
        "name TEXT, n INTEGER, PRIMARY KEY (name, n)",
        lambda _: (f"'key{i}', {i}" for i in range(20)),
        says=("20 of 20 rows are the same in both databases, but have only keys, and columns named like ids",),
    ),
    "names that both databases have are said without a key that forbids them": Guess(
        "id INTEGER PRIMARY KEY, name TEXT, avoid INT",
        lambda s: (f"{i}, '{'both' if i < 4 else s} {i}', 'h{i}'" for i in IDS),
        says=("3 rows of each database with the same name, such as 'both 3'; no key forbids it: taken.name",),
    ),
    "ids of a few in a text are asked about if the word beside them is their table": Guess(
        "k TEXT, n TEXT", lambda _: (f"'people.{i}.badge', 'page {i}'" for i in range(3, 20)), ("k",)),
    "the counter in a table of one row is asked about": Guess(
        "next_val INTEGER", lambda _: ["61"], ("next_val",), ("the next number of people.id (top)",)
    ),
    "a counter beside its name is asked about": Guess(
        "name TEXT, next_val INTEGER",
        lambda _: ["'people_seq', 61", "'theme', 4"],
        ("next_val",),
        ("the next number of people.id (top)",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
def test_what_is_guessed_of_a_table_and_asked(draft: Drafted, guess: Guess) -> None:
    text = draft(guess.columns, guess.rows)
    assert guess.asked in (None, tuple(asked(text)))
    assert all(part in text for part in guess.says)


def test_the_s_of_sid_is_no_plural(draft: Drafted) -> None:
    marks = "thread_mark (sid INTEGER PRIMARY KEY)", "thread (tid INTEGER PRIMARY KEY)"
    others = {each: lambda _: map(str, IDS) for each in marks}
    assert "tid: ids of thread.tid" in draft("s TEXT, tid INT", lambda s: (f"'{s}', {i}" for i in IDS), others=others)


def test_a_signed_column_has_ids_of_an_unsigned_one(drafted: Drafted) -> None:
    tables: Tables = {
        "hero (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n FLOAT)": lambda _: (f"{i}, 0.5" for i in IDS),
        "pet (owner_id INT, n FLOAT)": lambda _: (f"{i}, 0.5" for i in IDS),
    }
    assert 'id   = ["owner_id"]' in drafted("mariadb", tables)


def test_ids_in_types_of_postgresql_are_asked_about(draft: Drafted) -> None:
    text = draft(
        "s TEXT, v integer[], span int4range, since interval",
        lambda s: (f"'{s}', ARRAY[{i}, 3], '[{i},{i + 1})', '{i} days'" for i in IDS),
        "postgresql",
    )
    assert asked(text) == ["v", "span"]


def test_names_with_the_id_of_their_row_are_no_names_of_one_thing(draft: Drafted) -> None:
    text = draft(
        "id INTEGER PRIMARY KEY, ref TEXT UNIQUE, who TEXT", lambda s: (f"{i}, 'O-{i:06}', '{s}{i}'" for i in range(50))
    )
    assert "50 of them under the same id, which is in it: one thing under its id" in text
    assert ('rows = "?"' in text, "match =" in text) == (True, False)


@pytest.mark.parametrize("column", ["whom INT", "v TEXT"])
def test_rows_that_have_nothing_but_ids_are_asked_about_though_they_look_the_same(draft: Drafted, column: str) -> None:
    end = ",1" * column.endswith("TEXT")
    text = draft(f"id INTEGER PRIMARY KEY, {column}", lambda _: (f"{i}, '{i * 7 % 60 + 1}{end}'" for i in IDS))
    assert 'rows = "?"' in text


def test_places_that_are_the_same_in_both_are_asked_about_though_their_state_differs(draft: Drafted) -> None:
    text = draft(
        "id INTEGER PRIMARY KEY, x INT, fed INT", lambda s: (f"{i}, {i * 137 % 991}, {i + 1700 * ord(s)}" for i in IDS)
    )
    assert 'rows = "?"' in text
    assert "most rows have the same x under the same id" in text


def test_a_few_numbers_beside_a_table_without_a_key_are_not_its_rowids(draft: Drafted) -> None:
    others: Tables = {"grp (who INT, tag TEXT)": lambda s: (f"{i * 7 % 60 + 1}, '{s}'" for i in IDS)}
    text = draft("grp_id INT, name TEXT", lambda s: (f"{i % 11}, '{s}'" for i in IDS), "sqlite", others)
    assert asked(text) == ["grp_id"]


@pytest.mark.parametrize("name", ["avoid", "nxPrepaid", "tos"])
def test_a_word_that_ends_as_an_id_is_not_the_name_of_an_id(draft: Drafted, name: str) -> None:
    text = draft(f"id INTEGER PRIMARY KEY, name TEXT, {name} INT", lambda s: (f"{i}, '{s}{i}', {i}" for i in IDS))
    assert f'"{name}"' not in next(line for line in text.splitlines() if line.startswith("id "))


# --- several tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "kinds", "rule"),
    [
        ("item_type TEXT, item_id INT", ("People", "App\\Models\\Pet"), "id"),
        ("item_type TEXT, item_id INT", ("People", "Kind"), "ask"),
        ("item_type TEXT, item_id INT", ("People", "Npc"), "ask"),
        ("kind TEXT, target_id INT", ("people", "pet"), "id"),
    ],
)
def test_a_column_that_names_the_tables_of_ids_decides(
    draft: Drafted, columns: str, kinds: tuple[str, str], rule: str
) -> None:
    others: Tables = {
        "pet (id INTEGER PRIMARY KEY, n REAL)": lambda s: (f"{i}, {'AB'.index(s)}.5" for i in range(1, 20)),
        "kinds (id INTEGER PRIMARY KEY, name TEXT UNIQUE)": lambda s: (
            f"{i}, 'k{chr(65 + (i + 'AB'.index(s)) % 20)}'" for i in range(1, 20)
        ),
    }
    text = draft(columns, lambda _: (f"'{kinds[i % 2]}', {i}" for i in range(1, 20)), "sqlite", others)
    assert f'{rule:<4} = ["{columns.split()[2]}"]' in text
    assert "ids of " in text
    assert f", as {columns.split(maxsplit=1)[0]} says" in text


def test_halves_of_an_id_in_two_columns_are_asked_about(draft: Drafted) -> None:
    large = range(150_000, 150_060)
    text = draft(
        "card0 INT, card2 INT, card3 INT",
        lambda _: (f"254, {i & 0xFFFF}, {i >> 16}" if i % 2 else "0, 0, 0" for i in large),
        "sqlite",
        {PEOPLE: lambda s: (f"{i}, '{s}{i}'" for i in large)},
    )
    assert "card2 and card3 are the low and high 16 bits of ids of people.id" in text


def test_keys_that_are_not_primary_are_keys(drafted: Drafted) -> None:
    """Columns of a domain, one with a unique key and one within a key that others refer to, by names in two cases."""
    tables: Tables = {
        'hero ("Id" int, realm int, id guid UNIQUE, PRIMARY KEY ("Id", realm))': lambda _: (
            f"{i}, {i % 2}, {800 + i}" for i in IDS
        ),
        "pet (name text, owner guid REFERENCES hero (id), hero int, realm int, keeper guid, "
        'FOREIGN KEY (hero, realm) REFERENCES hero ("Id", realm))': lambda s: (
            f"'{s}{i}', {800 + i}, {i}, {i % 2}, {800 + i}" for i in IDS
        ),
    }
    hero, _, pet = drafted("postgresql", tables, "CREATE DOMAIN guid AS integer").partition("[pet]")
    assert 'id   = ["Id", "id"]\nkeep = ["realm"]' in hero
    assert (asked(pet), 'id   = ["owner", "hero"]' in pet) == (["keeper"], True)


def test_a_game_that_counts_within_keys_and_from_large_numbers_is_understood(drafted: Drafted) -> None:
    """Ids within a key, ids of few large numbers, with names that say nothing; amounts."""
    heroes, guilds, large = range(1, 62), range(1, 10), 1 << 24
    tables: Tables = {
        "hero (id INT, realm INT, name TEXT, gold INT, rent INT, seen INT, PRIMARY KEY (id, realm)) WITHOUT ROWID": lambda s: (
            f"{i}, {i % 3 + 1}, '{s}', {i * 16384 + i * i}, {i * 100}, {10**9 + i}" for i in heroes
        ),
        "guild (id INTEGER PRIMARY KEY, name TEXT, owner INT)": lambda s: (
            f"{i}, '{s} {'xyzuvwabc'[i - 1]}', {i * 7 - 3}" for i in guilds
        ),
        "ranks (guild_id INT, rank INT, title TEXT, PRIMARY KEY (guild_id, rank))": lambda _: (
            f"{i}, {n}, 'Rank'" for i in guilds for n in (0, 1)
        ),
        "spell (id INT, owner INT, PRIMARY KEY (id, owner))": lambda _: (f"{i % 7 + 1}, {i}" for i in heroes),
        "item (id BIGINT PRIMARY KEY, name TEXT)": lambda s: (f"{large + i * 3}, '{s}'" for i in range(1, 40)),
        "mail (sent INT, add0 BIGINT, add1 BIGINT, add2 BIGINT, lost_id BIGINT, box_id BIGINT, s TEXT)": lambda s: (
            f"{1_700_000_000 + i}, {large + i * 3 if i > 3 else 0}, 0, 0, {large + i * 3 + 1}, {(7 << 50) + (i << 30)}, '{s}{i}'"
            for i in range(1, 14)
        ),
    }  # fmt: skip
    text = drafted("sqlite", tables)
    found = {name: TableMap(said["rows"], said) for name, said in tomllib.loads(text).items() if isinstance(said, dict)}
    assert {name: said.lists["id"] for name, said in found.items() if "id" in said.lists} == {
        "hero": ["id"], "guild": ["id", "owner"], "ranks": ["guild_id"], "spell": ["owner"], "item": ["id"]
    }  # fmt: skip
    assert {name: said.lists["ask"] for name, said in found.items() if "ask" in said.lists} == {
        "spell": ["id"], "mail": ["add0", "add1", "add2"]
    }  # fmt: skip
    for note in (
        "add0 to add2: its values fill item.id, and its name does not say it",
        "lost_id, box_id: named like an id, but leads nowhere: of another database?",
    ):
        assert note in text


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"])
def test_the_rowid_of_sqlite_moves_where_a_column_leads_to_it(two: Two, merging: Cli, key: str) -> None:
    tables: Tables = {
        f"block (what TEXT{key})": lambda s: (f"'{s}{i}'" for i in range(1, 101)),
        "spawn (id INTEGER PRIMARY KEY, block_rowid INT, what TEXT)": lambda s: (
            f"{i}, {i * 2}, '{s}{i * 2}'" for i in range(1, 51)
        ),
    }
    urls = two("sqlite", tables)
    merging(urls, code=0)
    wrong = "SELECT count(*) FROM spawn s LEFT JOIN block b ON b.rowid = s.block_rowid WHERE b.what IS NOT s.what"
    assert rows_of(urls[0], wrong) == [(0,)]


def test_a_column_that_is_named_after_a_table_holds_its_ids_even_if_it_is_narrower(drafted: Drafted) -> None:
    tables: Tables = {
        "project_categories (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(9))": lambda s: (
            f"{i}, '{s}'" for i in range(1, 41)
        ),
        "task (id INT AUTO_INCREMENT PRIMARY KEY, category_id SMALLINT, map_id INT)": lambda _: (
            f"{i}, {i % 40 + 1}, {i % 5 + 1}" for i in range(1, 91)
        ),
    }
    text = drafted("mariadb", tables)
    assert 'id   = ["id", "category_id"]\nkeep = ["map_id"]' in text
    assert "map_id: named after a list of the application, which no table here has" in text


def test_a_key_of_matched_rows_is_of_them_and_a_column_that_only_has_their_values_is_asked_about(
    drafted: Drafted,
) -> None:
    kinds = range(1, 20)
    tables: Tables = {
        "kinds (id INTEGER PRIMARY KEY, name TEXT UNIQUE)": lambda s: (
            f"{i}, 'k{chr(96 + (i + 'AB'.index(s)) % 20)}'" for i in kinds
        ),
        "t (total NUMERIC(8,2), target_id INT)": lambda _: (f"{i}.75, {i}" for i in kinds),
        "stock (kind_id INTEGER PRIMARY KEY, amount INT)": lambda s: (f"{i}, {i * 900 + 'AB'.index(s)}" for i in kinds),
    }
    text = drafted("postgresql", tables)
    assert 'keep = ["amount"]\nof.kind_id = "kinds"' in text
    assert 'keep = ["total"]\nask  = ["target_id"]' in text


def test_a_sequence_inside_of_a_key_is_an_id(drafted: Drafted) -> None:
    tables: Tables = {
        "mail (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, title VARCHAR(45) NOT NULL)": lambda s: (
            f"{i}, '{s}'" for i in range(1, 201)
        ),
        "attachments (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, n SMALLINT UNSIGNED NOT NULL DEFAULT 0, nameid INT, "
        "PRIMARY KEY (id, n))": lambda _: (f"{i}, 0, {500_000 + i}" for i in range(1, 151)),
    }
    text = drafted("mariadb", tables)
    assert 'id   = ["id"]\nkeep = ["n", "nameid"]' in text
    assert "counted, inside of a key" in text


def test_ids_behind_a_mark_and_bytes_that_may_have_ids_are_said(two: Two, merging: Cli) -> None:
    marked = range((1 << 60) + 1, (1 << 60) + 61)
    tables: Tables = {
        "pal (id BIGINT PRIMARY KEY, pal_data BYTEA)": lambda s: (f"{i}, '{s * 99}'" for i in marked),
        "t (pal_id BIGINT, name TEXT)": lambda s: (f"{i}, '{s}'" for i in marked),
    }
    urls = two("postgresql", tables)
    kept, wrong = 'keep = ["pal_data"]\nask  = ["id"]', 'keep = ["pal_data"]\nid = ["id"]'
    refused = merging(urls).out
    assert "[pal] id is undecided" in refused
    assert "[t] pal_id is undecided" in refused
    verdict = merging(urls, (kept, wrong), ('ask  = ["pal_id"]', 'id = ["pal_id"]'), options=("--dry-run",))
    said = " ".join(verdict.out.split())
    assert "[pal] id is in id, and its numbers have a mark in high bits, which an offset would change: move it" in said


def test_ids_of_a_layout_get_a_word_of_their_own(drafted: Drafted) -> None:
    def flake(i: int, side: str) -> int:
        return 7_300_000_000_000_000 + (i << 22) + "AB".index(side)

    tables: Tables = {
        "t (id BIGINT PRIMARY KEY, name TEXT)": lambda s: (f"{flake(i, s)}, '{s}{i}'" for i in range(50)),
        "u (n INTEGER PRIMARY KEY, t_id BIGINT)": lambda s: (f"{i}, {flake(i, s)}" for i in range(50)),
    }
    text = drafted("postgresql", tables)
    assert 'flake = ["id"]' in text
    assert 'flake = ["t_id"]' in text


def test_a_stream_of_all_rows_is_looked_at(draft: Drafted) -> None:
    text = draft(
        "id INTEGER PRIMARY KEY, about TEXT, s TEXT",
        lambda s: (f"{i}, '{f'player.{i % 60 + 1}' if i > 43_000 else 'nobody'}', '{s}'" for i in range(1, 45_001)),
    )
    assert asked(text) == ["about"]
    assert "ids of people.id inside (number 1)" in text


def test_orphans_are_counted_all_at_once_and_need_no_answer(drafted: Drafted) -> None:
    def rows(side: str) -> Iterator[str]:
        return (f"{i}, {i if i > ' AB'.index(side) else 900 + i}, '{side}'" for i in IDS)

    tables: Tables = {
        PEOPLE: people,
        "t (id INTEGER PRIMARY KEY, people_id INTEGER, s TEXT)": rows,
        "u (id INTEGER PRIMARY KEY, people_id INTEGER REFERENCES people (id), s TEXT)": rows,
    }
    text, lost = drafted("sqlite", tables), "1 and 2 rows"
    assert f"orphans, which need no answer: t.people_id to people.id: {lost}; u.people_id to people.id: {lost}" in text
    assert asked(text) == []


def test_tables_that_one_generator_numbers_are_named(drafted: Drafted) -> None:
    def pets(side: str, *, are_pets: bool = True) -> Iterator[str]:
        return (f"{70_000 + i}, '{side}no{i}'" for i in range(60) if bool(i % 3) == are_pets)

    tables: Tables = {
        PEOPLE: lambda s: pets(s, are_pets=False),
        "pet (id INTEGER PRIMARY KEY, name TEXT)": pets,
        "log (id INTEGER PRIMARY KEY, s TEXT)": lambda s: (f"{i}, '{s}{i}'" for i in IDS),
    }
    assert "one generator for people.id, pet.id? No number is in two of them" in drafted("sqlite", tables)


def test_names_that_are_words_or_have_odd_characters_are_no_matter(two: Two, merging: Cli) -> None:
    tables: Tables = {
        '"schema" ("rows" INTEGER PRIMARY KEY, "keep" TEXT, rowid TEXT)': lambda s: [f"1, '{s}%s', 'x'"],
        '"a.b %c" ("i d" INTEGER PRIMARY KEY, "x:y" TEXT)': lambda s: ["1, '%s'"],
    }
    urls = two("sqlite", tables)
    # some editors begin a file with this mark
    edits = ((f'ask  = ["{name}"]', f'id = ["{name}"]') for name in ("rows", "i d"))
    merging(urls, ('# rows: "copy"', '\ufeff# rows: "copy"'), *edits, code=0)
    assert rows_of(urls[0], """SELECT count(*) FROM "schema" WHERE rowid = 'x'""") == [(2,)]


@pytest.mark.parametrize(("teams", "asks"), [(60, True), (0, True), (2, False)])
@pytest.mark.parametrize("prefix", ["", "game_"])
def test_a_column_that_is_named_after_a_table_is_never_kept_in_silence(
    drafted: Drafted, teams: int, asks: bool, prefix: str
) -> None:
    # a third of the numbers are of no row; there is no row at all; nearly no number is of a row
    tables: Tables = {
        f"{prefix}people (id INTEGER PRIMARY KEY, name TEXT)": lambda s: [*people(s)][:5],
        f"{prefix}teams (id INTEGER PRIMARY KEY, name TEXT)": lambda s: (f"{i}, '{s}{i}'" for i in range(1, teams + 1)),
        f"{prefix}t (s TEXT, team_id INTEGER)": lambda s: (f"'{s}{i}', {i}" for i in range(1, 91)),
    }
    text = drafted("sqlite", tables).split(f"[{prefix}t]")[1]
    assert asked(text) == ["team_id"] * asks
    assert f"team_id: named like an id of {prefix}teams, and " in text


def test_a_column_that_is_called_as_the_key_of_a_table_is_asked_about_though_some_rows_are_gone(draft: Drafted) -> None:
    users: Tables = {"users (uid INTEGER PRIMARY KEY, name TEXT)": lambda s: (f"{i}, '{s}{i}'" for i in IDS)}
    text = draft(
        "s TEXT, uid INTEGER", lambda s: (f"'{s}{i}', {i + 9}" for i in IDS), "sqlite", {PEOPLE: empty, **users}
    )
    assert asked(text) == ["uid"]
    assert "uid: named like an id of users, and 85% of its values are there" in text
