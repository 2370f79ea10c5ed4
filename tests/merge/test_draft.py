"""Drafts: the guesses from the values of two databases, and the questions that stay open."""

import base64
import json
import struct
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from snowredis.merge.map_file import TableMap
from tests.support.statements import rows_of

Two = Callable[..., tuple[str, str]]
Cli = Callable[..., Any]
PEOPLE = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)"


def people(side: str, count: int = 60) -> str:
    # no digits: a name with a number in it is asked about
    names = (str(i).translate(str.maketrans("0123456789", "abcdefghij")) for i in range(1, count + 1))
    return ";".join(f"INSERT INTO people (id, name) VALUES ({i}, '{side} {name}')" for i, name in enumerate(names, 1))


@pytest.fixture
def draft(two: Two, offline: Cli) -> Callable[..., str]:
    """Draft a map of people and one more table; return the lines of that table."""

    def run(table: str, rows: Callable[[str], Iterable[str]], kind: str = "sqlite") -> str:
        sides = {
            side: f"{people(side)};{';'.join(f'INSERT INTO t VALUES ({row})' for row in rows(side))}" for side in "AB"
        }
        urls = two(kind, f"{PEOPLE};CREATE TABLE t ({table})", sides["A"], sides["B"])
        return str(offline("merge", "draft", *urls, code=0).out).split("[t]")[1]

    return run


def asked(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("ask ")]
    return json.loads(lines[0].partition("=")[2]) if lines else []


INSIDE = {
    "text": ("v TEXT", lambda s: (f"'{s}', 'player.{i}.badge'" for i in range(1, 61)), "number 1"),
    "behind a letter": ("v TEXT", lambda s: (f"'{s}', 'p{i},p{i % 7 + 1}'" for i in range(1, 61)), "number 1 after p"),
    "behind one of two words": (
        "v TEXT",
        lambda s: (f"'{s}', '{'npc' if i % 4 else 'player'}:{i % 4 * 7000 + i}'" for i in range(1, 61)),
        "number 1 after player",
    ),
    "hexadecimal": ("v TEXT", lambda s: (f"'{s}', '{i:08x}'" for i in range(1, 61)), "hexadecimal"),
    "with zeros before it": ("v TEXT", lambda s: (f"'{s}', 'INV-{i:06d}'" for i in range(1, 61)), "number 1"),
    "json in json": (
        "v TEXT",
        lambda s: (f"'{s}', '{json.dumps({'a': json.dumps({'who': float(i)})})}'" for i in range(1, 61)),
        "$.a $.who",
    ),
    "behind a time and an address": (
        "v TEXT",
        lambda s: (f"'{s}', '2026-01-02 03:04:05 from 10.0.0.7: {i} left'" for i in range(1, 61)),
        "number 1",
    ),
    "another sign": ("v TEXT", lambda s: (f"'{s}', 'of|{i}|x'" for i in range(1, 61)), "number 1"),
    "bytes with digits": (
        "v BLOB",
        lambda s: (f"'{s}', CAST('{i},{i % 7 + 1}' AS BLOB)" for i in range(1, 61)),
        "number 1",
    ),
    "bytes": (
        "v BLOB",
        lambda s: (f"'{s}', x'{struct.pack('<I', i).hex()}'" for i in range(1, 61)),
        "bytes 1 to 4, the lowest first",
    ),
    "bytes behind a byte": (
        "v BLOB",
        lambda s: (f"'{s}', x'01{struct.pack('>I', i).hex()}02'" for i in range(1, 61)),
        "bytes 2 to 5, the highest first",
    ),
    "json": ("v TEXT", lambda s: (f"'{s}', '{{\"a\": {{\"who\": {i}}}}}'" for i in range(1, 61)), "$.a.who"),
    "a list in json": ("v TEXT", lambda s: (f"'{s}', '[{i}, {i % 9 + 1}]'" for i in range(1, 61)), "$[]"),
    "base64 with all of its signs": (
        "v TEXT",
        lambda s: (
            f"'{s}', '{base64.b64encode(b'>?>???' + struct.pack('<I', i) + b'??').decode()}'" for i in range(1, 61)
        ),
        "base64 bytes 7 to 10, the lowest first",
    ),
    "base64": (
        "v TEXT",
        lambda s: (f"'{s}', '{base64.b64encode(f'p:{i}'.encode()).decode()}'" for i in range(1, 61)),
        "base64 number 1",
    ),
    "keys of json": ("v TEXT", lambda s: (f"'{s}', '{{\"{i}\": true}}'" for i in range(1, 61)), "$, keys"),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_ids_inside_of_values_are_asked_about_with_the_place(draft: Callable[..., str], kind: str) -> None:
    column, rows, place = INSIDE[kind]
    text = draft(f"s TEXT, {column}", rows)
    assert asked(text) == ["v"]
    assert f"ids of people.id inside ({place})" in text


def test_ids_in_types_of_postgresql_are_asked_about(draft: Callable[..., str]) -> None:
    text = draft(
        "s TEXT, v integer[], span int4range, since interval",
        lambda s: (f"'{s}', ARRAY[{i}, 3], '[{i},{i + 1})', '{i} days'" for i in range(1, 61)),
        "postgresql",
    )
    assert asked(text) == ["v", "span"]


def test_a_column_that_says_of_which_table_the_ids_are_is_named(draft: Callable[..., str]) -> None:
    def rows(side: str) -> Iterable[str]:
        for i in range(1, 61):
            yield f"'{side}', 'player', {i}"
            yield f"'{side}', 'npc', {90_000 + i}"

    text = draft("s TEXT, kind TEXT, sender INTEGER", rows)
    assert asked(text) == ["sender"]
    assert "all where kind is player" in text


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
    two: Two, offline: Cli, columns: str, kinds: tuple[str, str], rule: str
) -> None:
    tables = "CREATE TABLE pet (id INTEGER PRIMARY KEY, n REAL); CREATE TABLE kinds (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"
    rows = {
        s: f"{people(s)};" + ";".join(
            f"INSERT INTO pet VALUES ({i}, {at}.5); INSERT INTO kinds VALUES ({i}, 'k{chr(65 + (i + at) % 20)}');"
            f"INSERT INTO t VALUES ('{kinds[i % 2]}', {i})" for i in range(1, 20)
        )
        for at, s in enumerate("AB")
    }  # fmt: skip
    urls = two("sqlite", f"{PEOPLE};{tables};CREATE TABLE t ({columns})", rows["A"], rows["B"])
    text = offline("merge", "draft", *urls).out.split("[t]")[1]
    assert f'{rule:<4} = ["{columns.split()[2]}"]' in text
    assert "ids of " in text
    assert f", as {columns.split(maxsplit=1)[0]} says" in text


def test_halves_of_an_id_in_two_columns_are_asked_about(two: Two, offline: Cli) -> None:
    many = {s: ";".join(f"INSERT INTO people VALUES ({150_000 + i}, '{s}{i}')" for i in range(60)) for s in "AB"}
    halves = ";".join(
        f"INSERT INTO t VALUES ({254 if i % 2 else 0}, {(150_000 + i) & 0xFFFF if i % 2 else 0}, {(150_000 + i) >> 16 if i % 2 else 0})"
        for i in range(60)
    )
    urls = two(
        "sqlite",
        f"{PEOPLE}; CREATE TABLE t (card0 INT, card2 INT, card3 INT)",
        f"{many['A']};{halves}",
        f"{many['B']};{halves}",
    )
    text = offline("merge", "draft", *urls).out
    assert "card2 and card3 are the low and high 16 bits of ids of people.id" in text


@pytest.mark.parametrize(
    ("number", "part"),
    [
        ("{0}05", "its 100s are ids of people.id"),
        ("{0} * 256 + 2", "its 256s are ids of people.id"),
        ("(3 << 24) + {0}", "its remainders by 16,777,216 are ids of people.id"),
        ("{0} * CASE WHEN {0} > 9 THEN -1 ELSE 1 END", "its negative numbers are ids of people.id"),
    ],
)
def test_ids_in_a_part_of_a_number_are_asked_about(draft: Callable[..., str], number: str, part: str) -> None:
    text = draft("s TEXT, packed INTEGER", lambda s: (f"'{s}', {number.format(i)}" for i in range(1, 61)))
    assert asked(text) == ["packed"]
    assert f"packed: {part}? Write sql" in text


def test_texts_that_only_look_like_numbers_or_json_are_no_matter(draft: Callable[..., str]) -> None:
    texts = "²", "[" * 9000, '{"²": 1e999}'
    assert asked(draft("s TEXT, v TEXT", lambda s: (f"'{s}', '{text}'" for text in texts))) == []


def test_keys_that_are_not_primary_are_keys(two: Two, offline: Cli) -> None:
    """Columns of a domain, one with a unique key and one within a key that others refer to, by names in two cases."""
    tables = (
        'CREATE DOMAIN guid AS integer; CREATE TABLE hero ("Id" int, realm int, id guid UNIQUE, PRIMARY KEY ("Id", realm));'
        "CREATE TABLE pet (name text, owner guid REFERENCES hero (id), hero int, realm int, keeper guid, "
        'FOREIGN KEY (hero, realm) REFERENCES hero ("Id", realm))'
    )
    rows = {
        s: ";".join(f"INSERT INTO hero VALUES ({i}, {i % 2}, {800 + i})" for i in range(1, 61))
        + ";"
        + ";".join(f"INSERT INTO pet VALUES ('{s}{i}', {800 + i}, {i}, {i % 2}, {800 + i})" for i in range(1, 61))
        for s in "AB"
    }
    hero, _, pet = offline("merge", "draft", *two("postgresql", tables, rows["A"], rows["B"])).out.partition("[pet]")
    assert 'id   = ["Id", "id"]\nkeep = ["realm"]' in hero
    assert (asked(pet), 'id   = ["owner", "hero"]' in pet) == (["keeper"], True)


def test_a_game_that_counts_within_keys_and_from_large_numbers_is_understood(two: Two, offline: Cli) -> None:
    """Ids within a key, ids of few large numbers, with names that say nothing; amounts, which are no packed ids."""
    tables = (
        "CREATE TABLE hero (id INT, realm INT, name TEXT, gold INT, rent INT, seen INT, PRIMARY KEY (id, realm)) WITHOUT ROWID;"
        "CREATE TABLE guild (id INTEGER PRIMARY KEY, name TEXT, owner INT);"
        "CREATE TABLE ranks (guild_id INT, rank INT, title TEXT, PRIMARY KEY (guild_id, rank));"
        "CREATE TABLE spell (id INT, owner INT, PRIMARY KEY (id, owner)); CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT);"
        "CREATE TABLE mail (sent INT, add0 BIGINT, add1 BIGINT, add2 BIGINT, lost_id BIGINT, box_id BIGINT, s TEXT)"
    )
    rows = {
        s: ";".join(
            [f"INSERT INTO hero VALUES ({i}, {i % 3 + 1}, '{s}', {i * 16384 + i * i}, {i * 100}, {10**9 + i})" for i in range(1, 62)]
            + [f"INSERT INTO guild VALUES ({i}, '{s} {'xyzuvwabc'[i - 1]}', {i * 7 - 3})" for i in range(1, 10)]
            + [f"INSERT INTO ranks VALUES ({i}, {n}, 'Rank')" for i in range(1, 10) for n in (0, 1)]
            + [f"INSERT INTO spell VALUES ({i % 7 + 1}, {i})" for i in range(1, 62)]
            + [f"INSERT INTO item VALUES ({(1 << 24) + i * 3}, '{s}')" for i in range(1, 40)]
            + [f"INSERT INTO mail VALUES ({1_700_000_000 + i}, {(1 << 24) + i * 3 if i > 3 else 0}, 0, 0, "
               f"{(1 << 24) + i * 3 + 1}, {(7 << 50) + (i << 30)}, '{s}{i}')" for i in range(1, 14)]
        )
        for s in "AB"
    }  # fmt: skip
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out
    found = {name: TableMap(said["rows"], said) for name, said in tomllib.loads(text).items() if isinstance(said, dict)}
    assert {name: said.lists["id"] for name, said in found.items() if "id" in said.lists} == {
        "hero": ["id"], "guild": ["id", "owner"], "ranks": ["guild_id"], "spell": ["owner"], "item": ["id"]
    }  # fmt: skip
    assert {name: said.lists["ask"] for name, said in found.items() if "ask" in said.lists} == {
        "spell": ["id"], "mail": ["add0", "add1", "add2", "lost_id"]
    }  # fmt: skip
    assert found["ranks"].rows == "?"
    for note in (
        "add0 to add2: its values fill item.id, and its name does not say it",
        "lost_id: named like an id; no table has its values, but they are between ids of tables",
        "box_id: named like an id, but leads nowhere: of another database?",
    ):
        assert note in text


def test_families_of_columns_are_one_line_and_one_question(draft: Callable[..., str]) -> None:
    columns = ", ".join(f"item{n} INTEGER" for n in range(6))
    text = draft(
        f"s TEXT, {columns}",
        lambda s: (
            f"'{s}', " + ", ".join(str(i * (1, 7, 11, 13, 17, 19)[n] % 60 + 1) for n in range(6)) for i in range(60)
        ),
    )
    assert asked(text) == [f"item{n}" for n in range(6)]
    assert "# item0 to item5: " in text


def test_the_rowid_of_sqlite_moves_where_a_column_leads_to_it(two: Two, merging: Cli) -> None:
    sides = {
        s: ";".join(f"INSERT INTO block VALUES ('{s}{i}')" for i in range(1, 101))
        + ";"
        + ";".join(f"INSERT INTO spawn VALUES ({i}, {i * 2}, '{s}{i * 2}')" for i in range(1, 51))
        for s in "AB"
    }
    urls = two(
        "sqlite", "CREATE TABLE block (what TEXT); CREATE TABLE spawn (id INTEGER PRIMARY KEY, block_rowid INT, what TEXT)",
        sides["A"], sides["B"],
    )  # fmt: skip
    merging(urls, code=0)
    wrong = "SELECT count(*) FROM spawn s LEFT JOIN block b ON b.rowid = s.block_rowid WHERE b.what IS NOT s.what"
    assert rows_of(urls[0], wrong) == [(0,)]


def test_a_column_that_is_named_after_a_table_holds_its_ids_even_if_it_is_narrower(two: Two, offline: Cli) -> None:
    tables = (
        "CREATE TABLE project_categories (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(9));"
        "CREATE TABLE task (id INT AUTO_INCREMENT PRIMARY KEY, category_id SMALLINT, map_id INT)"
    )
    rows = {
        s: f"INSERT INTO project_categories SELECT seq, '{s}' FROM seq_1_to_40;"
        "INSERT INTO task SELECT seq, MOD(seq, 40) + 1, MOD(seq, 5) + 1 FROM seq_1_to_90"
        for s in "AB"
    }
    text = offline("merge", "draft", *two("mariadb", tables, rows["A"], rows["B"])).out
    assert 'id   = ["id", "category_id"]\nkeep = ["map_id"]' in text
    assert "map_id: named after a list of the application, which no table here has" in text


def test_a_number_that_is_named_like_an_amount_is_asked_about_if_it_ends_where_ids_end(
    draft: Callable[..., str],
) -> None:
    text = draft(
        "at INTEGER, type INTEGER, s TEXT", lambda s: (f"{1_700_000_000 + i}, {i % 60 + 1}, '{s}'" for i in range(200))
    )
    assert asked(text) == ["type"]


def test_rows_that_only_look_alike_are_never_left_away_by_a_guess(draft: Callable[..., str]) -> None:
    # dense ids and few different values: most rows of both are the same by chance
    text = draft(
        "id INTEGER PRIMARY KEY, place TEXT", lambda _: (f"{i}, '{'bag' if i % 5 else 'shop'}'" for i in range(1, 90))
    )
    assert 'rows = "?"' in text


def test_rows_of_the_application_are_those_of_the_first(draft: Callable[..., str]) -> None:
    text = draft("name TEXT PRIMARY KEY, value TEXT", lambda _: (f"'key{i}', 'value{i}'" for i in range(20)))
    assert 'rows = "first"' in text
    assert "20 of 20 rows are the same in both databases" in text


def test_the_same_things_under_other_ids_are_asked_about(draft: Callable[..., str]) -> None:
    text = draft(
        "id INTEGER PRIMARY KEY, street TEXT, owner TEXT",
        lambda s: (f"{i}, 'Street {chr(64 + i)}', '{s}{i}'" for i in range(1, 27)),
    )
    assert 'rows = "?"' in text
    assert 'match = ["street"]' in text


def test_names_with_the_id_of_their_row_are_no_names_of_one_thing(draft: Callable[..., str]) -> None:
    text = draft(
        "id INTEGER PRIMARY KEY, ref TEXT UNIQUE, who TEXT", lambda s: (f"{i}, 'O-{i:06}', '{s}{i}'" for i in range(50))
    )
    assert "50 of them under the same id, which is in it: one thing under its id" in text
    assert ('rows = "?"' in text, "match =" in text) == (True, False)


def test_a_key_of_matched_rows_is_of_them_and_a_column_that_only_has_their_values_is_asked_about(
    two: Two, offline: Cli
) -> None:
    tables = (
        "CREATE TABLE kinds (id INTEGER PRIMARY KEY, name TEXT UNIQUE);CREATE TABLE t (total NUMERIC(8,2), target_id INT);"
        "CREATE TABLE stock (kind_id INTEGER PRIMARY KEY, amount INT)"
    )
    rows = {
        s: ";".join(
            f"INSERT INTO kinds VALUES ({i}, 'k{chr(96 + (i + n) % 20)}'); INSERT INTO t VALUES ({i}.75, {i});"
            f"INSERT INTO stock VALUES ({i}, {i * 900 + n})"
            for i in range(1, 20)
        )
        for n, s in enumerate("AB")
    }
    text = offline("merge", "draft", *two("postgresql", tables, rows["A"], rows["B"])).out
    assert 'keep = ["amount"]\nof.kind_id = "kinds"' in text
    assert 'keep = ["total"]\nask  = ["target_id"]' in text


def test_names_of_rows_that_have_other_keys_are_asked_about_as_taken(two: Two, offline: Cli) -> None:
    tables = "CREATE TABLE hero (id uuid PRIMARY KEY, name text UNIQUE, at text); CREATE TABLE opt (name text PRIMARY KEY, a text, b text)"
    rows = {
        s: ";".join(f"INSERT INTO hero VALUES ('{n}{i:031x}', 'Hero {i}', '{s}{i}')" for i in range(4))
        + f";INSERT INTO opt VALUES ('motd', '{s}', '{s}')"
        for n, s in enumerate("AB")
    }
    hero, _, opt = offline("merge", "draft", *two("postgresql", tables, rows["A"], rows["B"])).out.partition("[opt]")
    assert 'rows = "copy"\nkeep = ["id", "name", "at"]\ntaken.name = "?"' in hero
    assert 'rows = "?"\nkeep = ["name", "a", "b"]' in opt


def test_a_sequence_inside_of_a_key_is_an_id(two: Two, offline: Cli) -> None:
    tables = (
        "CREATE TABLE mail (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, title VARCHAR(45) NOT NULL);"
        "CREATE TABLE attachments (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, n SMALLINT UNSIGNED NOT NULL DEFAULT 0, nameid INT, PRIMARY KEY (id, n))"
    )
    rows = {
        s: f"INSERT INTO mail SELECT seq, '{s}' FROM seq_1_to_200; INSERT INTO attachments SELECT seq, 0, 500000 + seq FROM seq_1_to_150"
        for s in "AB"
    }
    text = offline("merge", "draft", *two("mariadb", tables, rows["A"], rows["B"])).out
    assert 'id   = ["id"]\nkeep = ["n", "nameid"]' in text
    assert "counted, inside of a key" in text


def test_ids_behind_a_mark_and_bytes_that_may_have_ids_are_said(two: Two, merging: Cli) -> None:
    tables = "CREATE TABLE pal (id BIGINT PRIMARY KEY, pal_data BYTEA);CREATE TABLE t (pal_id BIGINT, name TEXT)"
    rows = {
        s: ";".join(
            f"INSERT INTO pal VALUES ({(1 << 60) + i}, '{s * 99}'); INSERT INTO t VALUES ({(1 << 60) + i}, '{s}')"
            for i in range(1, 61)
        )
        for s in "AB"
    }
    urls = two("postgresql", tables, rows["A"], rows["B"])
    kept, wrong = 'keep = ["pal_data"]\nask  = ["id"]', 'keep = ["pal_data"]\nid = ["id"]'
    refused = merging(urls).out
    assert "[pal] id is undecided" in refused
    assert "[t] pal_id is undecided" in refused
    verdict = merging(urls, (kept, wrong), ('ask  = ["pal_id"]', 'id = ["pal_id"]'), options=("--dry-run",))
    said = " ".join(verdict.out.split())
    assert "[pal] id is in id, and its numbers have a mark in high bits, which an offset would change: move it" in said


def test_ids_of_a_layout_get_a_word_of_their_own(two: Two, offline: Cli) -> None:
    base = 7_300_000_000_000_000
    sides = {
        s: ";".join(f"INSERT INTO t VALUES ({base + i * 4_194_304 + n}, '{s}{i}')" for i in range(50))
        for n, s in enumerate("AB")
    }
    refers = {
        s: ";".join(f"INSERT INTO u VALUES ({i}, {base + i * 4_194_304 + n})" for i in range(50))
        for n, s in enumerate("AB")
    }
    tables = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT); CREATE TABLE u (n INTEGER PRIMARY KEY, t_id BIGINT)"
    urls = two("postgresql", tables, f"{sides['A']};{refers['A']}", f"{sides['B']};{refers['B']}")
    text = offline("merge", "draft", *urls).out
    assert 'flake = ["id"]' in text
    assert 'flake = ["t_id"]' in text


@pytest.mark.parametrize("columns", ["next_val INTEGER", "name TEXT, next_val INTEGER"])
def test_a_counter_in_a_table_is_asked_about(draft: Callable[..., str], columns: str) -> None:
    rows = ["61"] if columns.startswith("next") else ["'people_seq', 61", "'theme', 4"]
    text = draft(columns, lambda _: rows)
    assert asked(text) == ["next_val"]
    assert "the next number of people.id (top)" in text


def test_ids_that_are_stored_as_floats_or_as_negative_numbers_are_found(draft: Callable[..., str]) -> None:
    text = draft(
        "s TEXT, people_id REAL, peer INTEGER, height REAL",
        lambda s: (f"'{s}', {i}.0, {-i}, {i}.5" for i in range(1, 61)),
    )
    assert asked(text) == ["peer"]
    assert 'id   = ["people_id"]' in text
    assert "peer: its negative numbers are ids of people.id? Write sql" in text


def test_a_stream_of_all_rows_is_looked_at(two: Two, offline: Cli) -> None:
    many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 45000)"
    values = "i, CASE WHEN i > 43000 THEN 'player.' || (i % 60 + 1) ELSE 'nobody' END"
    rows = {s: f"{people(s)};INSERT INTO t {many} SELECT {values}, '{s}' FROM n" for s in "AB"}
    tables = f"{PEOPLE};CREATE TABLE t (id INTEGER PRIMARY KEY, about TEXT, s TEXT)"
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out
    assert asked(text) == ["about"]
    assert "ids of people.id inside (number 1)" in text


def test_orphans_are_counted_all_at_once_and_need_no_answer(two: Two, offline: Cli) -> None:
    tables = (
        f"{PEOPLE};CREATE TABLE t (id INTEGER PRIMARY KEY, people_id INTEGER, s TEXT);"
        "CREATE TABLE u (id INTEGER PRIMARY KEY, people_id INTEGER REFERENCES people (id), s TEXT)"
    )
    rows = {
        s: f"{people(s)};"
        + ";".join(
            f"INSERT INTO {t} VALUES ({i}, {i if i > n else 900 + i}, '{s}')" for i in range(1, 61) for t in "tu"
        )
        for s, n in (("A", 1), ("B", 2))
    }
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out
    lost = "1 and 2 rows"
    assert f"orphans, which need no answer: t.people_id to people.id: {lost}; u.people_id to people.id: {lost}" in text
    assert asked(text) == []


def test_a_key_that_is_named_after_something_outside_is_asked_about(draft: Callable[..., str]) -> None:
    text = draft(
        "accountId INTEGER PRIMARY KEY, level INTEGER",
        lambda s: (f"{i}, {i * (7 if s == 'A' else 9)}" for i in range(1, 30)),
    )
    assert asked(text) == ["accountId"]
    assert "a key by itself: an id of this table, or of something outside?" in text


def test_tables_that_one_generator_numbers_are_named(two: Two, offline: Cli) -> None:
    tables = f"{PEOPLE};CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT);CREATE TABLE log (id INTEGER PRIMARY KEY, s TEXT)"
    rows = {
        s: ";".join(
            [f"INSERT INTO {'pet' if i % 3 else 'people'} VALUES ({70_000 + i}, '{s}no{i}')" for i in range(60)]
            + [f"INSERT INTO log VALUES ({i}, '{s}{i}')" for i in range(1, 61)]
        )
        for s in "AB"
    }
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out
    assert "one generator for people.id, pet.id? No number is in two of them" in text


def test_names_that_are_words_or_have_odd_characters_are_no_matter(two: Two, merging: Cli) -> None:
    tables = 'CREATE TABLE "schema" ("rows" INTEGER PRIMARY KEY, "keep" TEXT); CREATE TABLE "a.b %c" ("i d" INTEGER PRIMARY KEY, "x:y" TEXT)'
    rows = "INSERT INTO \"schema\" VALUES (1, 'x%s');INSERT INTO \"a.b %%c\" VALUES (1, '%%s')".replace("x%s", "x%%s")
    urls = two("sqlite", tables, rows.replace("%%", "%"), rows.replace("%%", "%").replace("x", "y"))
    merging(urls, code=0)
    assert rows_of(urls[0], 'SELECT count(*) FROM "schema"') == [(2,)]


@pytest.mark.parametrize(("values", "asks"), [("60", True), ("", True), ("2", False)])
@pytest.mark.parametrize("prefix", ["", "game_"])
def test_a_column_that_is_named_after_a_table_is_never_kept_in_silence(
    two: Two, offline: Cli, values: str, asks: bool, prefix: str
) -> None:
    # a third of the numbers are of no row; there is no row at all; nearly no number is of a row
    tables = f"{PEOPLE};CREATE TABLE teams (id INTEGER PRIMARY KEY, name TEXT);CREATE TABLE t (s TEXT, team_id INTEGER)"
    renamed = ";".join(f"ALTER TABLE {name} RENAME TO {prefix}{name}" for name in ("people", "teams", "t") if prefix)
    rows = {
        s: f"{people(s, 5)};"
        + ";".join(f"INSERT INTO teams VALUES ({i}, '{s}{i}')" for i in range(1, int(values or 0) + 1))
        + ";"
        + ";".join(f"INSERT INTO t VALUES ('{s}{i}', {i})" for i in range(1, 91))
        + f";{renamed}"
        for s in "AB"
    }
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out.split(f"[{prefix}t]")[1]
    assert asked(text) == ["team_id"] * asks
    assert f"team_id: named like an id of {prefix}teams, and " in text


def test_a_column_that_is_called_as_the_key_of_a_table_is_asked_about_though_some_rows_are_gone(
    two: Two, offline: Cli
) -> None:
    tables = "CREATE TABLE users (uid INTEGER PRIMARY KEY, name TEXT);CREATE TABLE t (s TEXT, uid INTEGER)"
    rows = {
        s: ";".join(
            f"INSERT INTO users VALUES ({i}, '{s}{i}');INSERT INTO t VALUES ('{s}{i}', {i + 9})" for i in range(1, 61)
        )
        for s in "AB"
    }
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out.split("[t]")[1]
    assert asked(text) == ["uid"]
    assert "uid: named like an id of users, and 85% of its values are there" in text


def test_a_column_that_is_called_as_a_table_is_asked_about_even_if_it_has_few_values(draft: Callable[..., str]) -> None:
    text = draft("s TEXT, people INTEGER, speed INTEGER", lambda s: (f"'{s}{i}', {i * 8}, {i * 8}" for i in (1, 3, 5)))
    assert asked(text) == ["people"]


def test_addresses_have_no_ids(draft: Callable[..., str]) -> None:
    text = draft(
        "s TEXT, ip TEXT, place TEXT", lambda s: (f"'{s}', '10.0.3.{i}', '10.0.300.{i}'" for i in range(1, 61))
    )
    assert asked(text) == ["place"]


def test_times_in_milliseconds_have_no_ids_in_their_high_bits(two: Two, offline: Cli) -> None:
    tables = "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT);CREATE TABLE t (s TEXT, seen BIGINT, pair BIGINT)"
    rows = {
        s: ";".join(
            [f"INSERT INTO things VALUES ({i}, '{s}{i}')" for i in range(1, 601)]
            + [
                f"INSERT INTO t VALUES ('{s}{i}', {1_600_000_000_000 + i * 4_000_000_000}, {(i * 9 << 32) + 7 * i})"
                for i in range(1, 61)
            ]
        )
        for s in "AB"
    }
    text = offline("merge", "draft", *two("sqlite", tables, rows["A"], rows["B"])).out.split("[t]")[1]
    assert asked(text) == ["pair"]


def test_tables_of_keys_with_texts_are_not_called_numbers(draft: Callable[..., str]) -> None:
    text = draft("name TEXT, n INTEGER, PRIMARY KEY (name, n)", lambda _: (f"'key{i}', {i}" for i in range(20)))
    assert "20 of 20 rows are the same in both databases, but have only keys, and columns named like ids" in text


def test_names_that_both_databases_have_are_said_without_a_key_that_forbids_them(draft: Callable[..., str]) -> None:
    def rows(side: str) -> Iterable[str]:
        for i in range(1, 61):
            yield f"{i}, '{'both' if i < 4 else side} {i}', 'h{i}'"

    text = draft("id INTEGER PRIMARY KEY, name TEXT, avoid INT", rows)
    assert "3 rows of each database with the same name, such as 'both 3'; no key forbids it: taken.name" in text


@pytest.mark.parametrize("name", ["avoid", "nxPrepaid", "tos"])
def test_a_word_that_ends_as_an_id_is_not_the_name_of_an_id(draft: Callable[..., str], name: str) -> None:
    text = draft(
        f"id INTEGER PRIMARY KEY, name TEXT, {name} INT", lambda s: (f"{i}, '{s}{i}', {i}" for i in range(1, 61))
    )
    assert f'"{name}"' not in next(line for line in text.splitlines() if line.startswith("id "))
