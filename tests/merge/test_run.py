"""Merges on three kinds of databases: every word of a map, the proof, the mark, and what stays as it was."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.exit_codes import ExitCode
from snowredis.merge import MergeError
from snowredis.merge.databases import Progress
from snowredis.merge.run import merge
from snowredis.merge.translation import Translation
from tests.merge import game
from tests.merge.conftest import Cli, Two, empty, schema_of
from tests.support.databases import mariadb
from tests.support.statements import Tables, execute, rows_of

KINDS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(params=KINDS)
def servers(request: pytest.FixtureRequest, tmp_path: Path, offline: Cli) -> tuple[Path, str, str]:
    """Two servers of a game, and the map of a person."""
    server = request.getfixturevalue(f"{request.param}_server")
    urls = server.new_database(), server.new_database()
    for url, side, size in zip(urls, "AB", (40, 30), strict=True):
        game.fill(url, request.param, side, size)
    path = game.write_map(tmp_path / "game.map", request.param, schema_of(offline("merge", "draft", *urls).out))
    return path, *urls


OF = {
    "sqlite": "'p:' || :of(hero, CAST(substr(v, 3) AS INTEGER))",
    "postgresql": "'p:' || :of(hero, CAST(substr(v, 3) AS bigint))",
    "mariadb": "CONCAT('p:', :of(hero, CAST(SUBSTR(v, 3) AS SIGNED)))",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", [0, 7_300_000_000_000_000_000])
def test_an_expression_has_the_new_id_of_any_table(two: Two, merging: Cli, kind: str, base: int) -> None:
    ids = {s: [base + (i << 22) + (i > 9 and ord(s)) if base else i * 3 for i in range(1, 31)] for s in "AB"}
    tables: Tables = {
        "hero (id BIGINT PRIMARY KEY, name VARCHAR(9))": lambda s: (
            f"{an_id}, '{s}{n}'" for n, an_id in enumerate(ids[s])
        ),
        "t (s VARCHAR(9), v VARCHAR(40))": lambda s: (f"'{s}{n}', 'p:{an_id}'" for n, an_id in enumerate(ids[s])),
    }
    urls = two(kind, tables)
    edits = [('match = ["v"]', ""), ('rows = "?"', 'rows = "copy"')] if kind == "sqlite" else []
    done = merging(urls, *edits, ('ask  = ["v"]', f'sql.v = "{OF[kind]}"'), code=0)
    assert f"t.v: {9 if base else 30} of 30 values change, such as 'p:" in " ".join(done.out.split())
    text = {"mariadb": "CONCAT('p:', h.id)"}.get(kind, "'p:' || h.id")
    assert rows_of(urls[0], f"SELECT count(*) FROM t JOIN hero h ON t.v = {text} WHERE h.name = t.s") == [(60,)]


def test_types_and_widths_that_few_tables_have_are_no_matter(two: Two, merging: Cli) -> None:
    """Zeros that are only shown, character sets, digits in bytes, more columns than a function of SQLite takes."""
    tables: Tables = {
        "people (id INT(8) ZEROFILL PRIMARY KEY)": lambda _: ["1", "12"],
        "t (people_id INT(8) ZEROFILL, a TEXT CHARACTER SET latin1, b TEXT CHARACTER SET cp1251)": lambda s: [
            f"{12 if s == 'A' else 1}, 'ä', 'я'"
        ],
    }
    urls = two("mariadb", tables)
    merging(urls, code=0)
    assert rows_of(urls[0], "SELECT * FROM t ORDER BY 1") == [(12, "ä", "я"), (101, "ä", "я")]
    columns = "".join(f", c{n} TEXT" for n in range(300))
    row = "INSERT INTO t (id, pal) VALUES (7, CAST('7' AS BLOB))"
    urls = two("sqlite", {f"t (id INTEGER PRIMARY KEY, pal BLOB{columns})": empty}, "", row)
    merging(urls, ('keep = ["pal", ', 'id = ["id", "pal"]\nkeep = ['), ('id   = ["id"]\n', ""), code=0)
    assert rows_of(urls[0], "SELECT id, pal FROM t") == [(17, b"17")]
    tables = {"t (id bit(4) PRIMARY KEY, pet set_kind)": lambda s: ["'0101', '7'"] + ["'0111', '7'"] * (s == "B")}
    away = "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE f () SERVER s"
    urls = two("postgresql", tables, f"CREATE TYPE set_kind AS ENUM ('7'); {away}")
    refused = merging(urls, ('keep = ["id", "pet"]', 'keep = ["id"]\nid = ["pet"]'))
    assert "pet is set_kind, which holds no number" in refused.out, refused.out + refused.err
    merging(urls, ('rows = "copy"', 'rows = "first"'), code=0)
    assert rows_of(urls[0], "SELECT CAST(id AS text) FROM t ORDER BY 1") == [("0101",), ("0111",)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_values_that_are_no_numbers_stay_in_columns_of_numbers(two: Two, merging: Cli, kind: str) -> None:
    def rows(side: str) -> list[str]:
        return [f"{n + (side == 'B')}, {owner}" for n, owner in enumerate(("'NaN'", 7, 0))]

    urls = two(kind, {"t (n INTEGER, owner NUMERIC)": rows})
    merging(urls, ('keep = ["n", "owner"]', 'id = ["owner"]\nkeep = ["n"]'), code=0)
    owners = [str(owner) for _, owner in rows_of(urls[0], "SELECT * FROM t ORDER BY n, owner")]
    assert owners == ["NaN", "7", "NaN", "0", "17", "0"]


def test_times_that_python_does_not_have_come_as_they_are(two: Two, merging: Cli) -> None:
    columns = "id int PRIMARY KEY, day date UNIQUE, at timestamptz"
    rows = {"A": "1, 'infinity', '-infinity'", "B": "1, 'infinity', NULL), (2, '0044-03-15 BC', '20000-01-01'"}
    urls = two("postgresql", {f"t ({columns})": lambda side: [rows[side]]})
    clash = "1 rows that would come have the day of a row that is there, such as 'infinity'"
    assert clash in " ".join(merging(urls).out.split())
    merging(urls, ("[t]\n", '[t]\nmatch = ["day"]\n'), code=0)
    came = "SELECT day::text, at::text FROM t WHERE id = 12"
    assert rows_of(urls[0], came) == [("0044-03-15 BC", "20000-01-01 00:00:00+00")]


def contents(url: str) -> dict[str, list[Any]]:
    return {name: sorted(rows_of(url, f"SELECT * FROM {name}"), key=str) for name in game.TABLES}


def test_every_row_comes_with_the_ids_that_the_map_says(servers: tuple[Path, str, str], offline: Cli) -> None:
    path, first, second = servers
    before, of_second = contents(first), contents(second)
    assert offline("merge", "run", str(path), first, second, "--dry-run").code == 0
    assert contents(first) == before
    done = offline("merge", "run", str(path), first, second, code=0)
    assert contents(second) == of_second
    after = contents(first)
    came = {name: [row for row in rows if row not in before[name]] for name, rows in after.items()}
    assert all(len(after[name]) == len(before[name]) + len(came[name]) for name in after if name != "counters")
    # whose are they? by names, as in the second database
    who = (
        "SELECT c.name, p.name, g.title FROM characters c JOIN characters p ON p.id = c.partner "
        "LEFT JOIN guilds g ON g.id = c.guild_id"
    )
    expected = [tuple("Bob-2" if each == "Bob" else each for each in row) for row in rows_of(second, who)]
    assert sorted(map(str, expected)) == sorted(map(str, rows_of(first, f"{who} WHERE c.id > 1000")))
    assert came["accounts"] == came["houses"] == []
    assert sorted(name for _, name in after["kinds"]) == ["axe", "bow", "sword"]
    kinds = "SELECT k.name, COUNT(*) FROM items i JOIN kinds k ON k.id = i.kind WHERE i.id > 1000 GROUP BY k.name"
    assert sorted(rows_of(first, kinds)) == [("axe", 30), ("bow", 30)]
    assert {owner for _, owner, place, *_ in came["items"] if place == "SHOP"} == {9}
    assert all(owner > 1000 for _, owner, place, *_ in came["items"] if place == "BAG")
    assert sorted(came["ranks"]) == [(10 + i, f"B rank {i}") for i in range(1, 6)]
    assert {rank for _, rank in came["members"]} == set(range(11, 16))
    assert {body for _, body in came["notes"]} == {f"about {1000 + i}" for i in range(1, 31)}
    assert [about for about, _ in sorted(came["notes"])] == sorted(str(1000 + i) for i in range(1, 31))
    assert after["counters"] == [("items", 1110)]
    # ids of a layout: those of both got others, everywhere
    flakes = [row[-1] for row in after["characters"] if row[-1]]
    assert len(flakes) == len(set(flakes)) == 6
    assert {row[-1] for row in came["items"]} <= {row[-1] for row in came["characters"]}
    pairs = path.with_name("game.map.pairs.csv").read_text().splitlines()
    assert pairs[0] == "where,old,new"
    assert "characters.name,Bob,Bob-2" in pairs
    assert len(pairs) == 5
    for said in ("new id = old id + 1,000", "of own = ranks: old id + 10", "30 rows of accounts", "1 of them differ"):
        assert said in " ".join(done.out.split())


def test_a_second_run_is_refused_even_if_the_second_database_has_changed_since(
    servers: tuple[Path, str, str], offline: Cli
) -> None:
    path, first, second = servers
    assert offline("merge", "run", str(path), first, second).code == 0
    after = contents(first)
    execute(second, "INSERT INTO ranks VALUES (77, 'new')", "UPDATE characters SET name = 'other' WHERE id = 1")
    refused = offline("merge", "run", str(path), first, second, code=ExitCode.MERGE_REFUSED)
    assert "this second database was merged at" in refused.err
    assert contents(first) == after


def test_the_next_ids_of_the_first_database_are_above_all_that_either_has_given(
    servers: tuple[Path, str, str], offline: Cli
) -> None:
    path, first, second = servers
    # rows that are gone may stand in a log
    execute(second, "INSERT INTO guilds (title) VALUES ('gone')", "DELETE FROM guilds WHERE title = 'gone'")
    assert offline("merge", "run", str(path), first, second).code == 0
    execute(first, "INSERT INTO guilds (title) VALUES ('new')")
    ((new,),) = rows_of(first, "SELECT id FROM guilds WHERE title = 'new'")
    assert new == 1005


def test_two_servers_of_mariadb_give_what_one_gives(
    request: pytest.FixtureRequest, tmp_path: Path, offline: Cli
) -> None:
    server = request.getfixturevalue("mariadb_server")
    firsts, second = (server.new_database(), server.new_database()), server.new_database()
    with mariadb() as other:
        elsewhere = other.new_database()
        for url, side, size in ((firsts[0], "A", 40), (firsts[1], "A", 40), (second, "B", 30), (elsewhere, "B", 30)):
            game.fill(url, "mariadb", side, size)
        of_second, schema = contents(elsewhere), schema_of(offline("merge", "draft", firsts[0], elsewhere).out)
        path = game.write_map(tmp_path / "game.map", "mariadb", schema)
        for first, its in zip(firsts, (second, elsewhere), strict=True):
            offline("merge", "run", str(path), first, its, code=0)
        assert contents(elsewhere) == of_second
        assert "this second database was merged at" in offline("merge", "run", str(path), firsts[1], elsewhere).err
    assert contents(firsts[0]) == contents(firsts[1])


@pytest.mark.parametrize("at", ["guilds", "items", "proved", "COMMIT"])
def test_an_end_at_any_step_leaves_the_first_database_as_it_was(servers: tuple[Path, str, str], at: str) -> None:
    path, first, second = servers
    before = contents(first)

    def stop(step: str) -> None:
        if step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(path, (first, second), Progress(), pause=stop)
    assert contents(first) == before
    # sequences of PostgreSQL are in no transaction
    assert merge(path, (first, second), Progress()).offsets[""] in (1000, 10_000 if at == "COMMIT" else 1000)


def test_a_row_that_changes_on_its_way_is_found_before_the_commit(
    servers: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, first, second = servers
    before, value = contents(first), Translation.value

    def wrong(self: Any, name: str, column: str) -> str:
        return value(self, name, column) if proving or column != "title" else "'lost'"

    proving: list[str] = []
    monkeypatch.setattr(Translation, "value", wrong)
    with pytest.raises(MergeError, match=r"proof failed.*\[guilds\] the rows that came are not"):
        merge(path, (first, second), Progress(), pause=lambda step: proving.append(step) if step == "items" else None)
    assert contents(first) == before


ITEMS = ('of.kind = "kinds"\n', "")
LOST = {
    # in a column that only the database can compute
    "an expression": (('"guild_id"]', "]"), ("[kinds]", 'sql.guild_id = "guild_id + 500"\n[kinds]')),
    # to a row of the second database that stays away, since the first has its name
    "a row that stays away": (
        ITEMS,
        ('keep = ["place"]', 'keep = ["place", "kind"]'),
        ('rows = "copy"\nmatch = ["name"]\nid = ["id"]\nkeep = [', 'rows = "first"\nkey = ["name"]\nkeep = ["id", '),
    ),
    "a matched row": (),
}  # fmt: skip


@pytest.mark.parametrize("how", LOST)
def test_a_row_that_leads_nowhere_is_found_before_the_commit(
    servers: tuple[Path, str, str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, first, second = servers
    text = path.read_text()
    for old, new in LOST[how]:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    # ids that the first database does not have
    execute(
        second,
        "INSERT INTO kinds (id, name) VALUES (71, 'bow-'), (72, 'axe-')",
        *(f"UPDATE items SET kind = {new} WHERE kind = {old}" for old, new in ((1, 71), (2, 72))),
        "DELETE FROM kinds WHERE id < 70",
        "UPDATE kinds SET name = 'bow' WHERE id = 71",
    )
    if not LOST[how]:
        # both the copy and the rules that it is compared with are wrong
        monkeypatch.setattr(Translation, "_of", lambda *arguments: f"{arguments[2]} + 500")
    before = contents(first)
    with pytest.raises(MergeError, match=r"leads to no row of (kinds|guilds)|violates foreign key constraint"):
        merge(path, (first, second), Progress())
    assert contents(first) == before


TRIGGERS = {
    "sqlite": ["CREATE TRIGGER made AFTER INSERT ON t BEGIN INSERT INTO log VALUES ('made'); END"],
    "postgresql": [
        "CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO log VALUES (''made''); RETURN NEW; END'",
        "CREATE TRIGGER made AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION logs()",
        "ALTER TABLE t ENABLE ALWAYS TRIGGER made",
    ],
}


@pytest.mark.parametrize("kind", TRIGGERS)
def test_triggers_do_not_run_and_are_there_afterwards(two: Two, kind: str, merging: Cli) -> None:
    key = "INTEGER PRIMARY KEY" if kind == "sqlite" else "serial PRIMARY KEY"
    tables: Tables = {
        f"t (id {key}, parent integer REFERENCES t (id), name text)": lambda s: (
            f"{i}, {parent}, '{s}{name}'" for i, parent, name in ((1, "NULL", "a"), (2, 1, "b"), (3, 3, "c"))
        ),
        "log (what text)": empty,
    }
    urls = two(kind, tables)
    for url in urls:
        execute(url, *TRIGGERS[kind])
    merging(urls, code=0)
    children = "SELECT c.name, p.name FROM t c JOIN t p ON p.id = c.parent WHERE c.id > 3 ORDER BY 1"
    assert rows_of(urls[0], children) == [("Bb", "Ba"), ("Bc", "Bc")]
    assert rows_of(urls[0], "SELECT count(*) FROM log") == [(0,)]
    execute(urls[0], "INSERT INTO t (id, name) VALUES (100, 'after')")
    assert rows_of(urls[0], "SELECT count(*) FROM log") == [(1,)]


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        *(("sqlite", each) for each in ("TEXT", "BLOB")),
        *(("postgresql", each) for each in ("uuid", "bytea", "varchar(40)")),
        *(("mariadb", each) for each in ("UUID", "BINARY(16)", "CHAR(36)")),
    ],
)
def test_rows_with_keys_that_are_no_numbers_are_matched_or_the_first(
    two: Two, merging: Cli, kind: str, type_: str
) -> None:
    def key(number: int) -> str:
        # no text in bytes
        digits = f"{0xFF00FE << 104 | number:032x}"
        if type_.startswith("B"):
            return f"x'{digits}'"
        return f"'\\x{digits}'" if type_ == "bytea" else f"'{uuid.UUID(digits)}'"

    first, eight = {"A": 100, "B": 600}, range(1, 9)

    def worth(side: str, number: int) -> int:
        return 1000 * number + first[side] * (number > 3)

    tables: Tables = {
        f"hero (id {type_} PRIMARY KEY, name VARCHAR(20) UNIQUE, n INT)": lambda s: (
            f"{key(i + first[s])}, '{'both' if i < 4 else s}{i}', {worth(s, i)}" for i in eight
        ),
        f"pet (id INTEGER PRIMARY KEY, hero_id {type_} REFERENCES hero (id), owner {type_}, n INT)": lambda s: (
            f"{i}, {key(i + first[s])}, {key(i + first[s])}, {worth(s, i)}" for i in eight
        ),
        f"flag (id {type_} PRIMARY KEY)": lambda s: (key(i + first[s] // 100) for i in eight),
    }
    urls = two(kind, tables)
    kept, flags = 'keep = ["hero_id", "owner", "n"]', 'rows = "copy"\nkeep = ["id"]\n\n[hero]\n'
    edits = [(flags, f'{flags.replace("copy", "first")}match = ["name"]\n')]
    refused = merging(urls, *edits).out
    assert (
        "[pet] hero_id is in keep, and refers to hero.id, which is in keep (with match): both must move alike"
        in refused
    )
    assert 'write of.hero_id = "hero"' in refused
    refused = merging(urls, *edits, (kept, 'of.hero_id = "hero"\nkeep = ["owner", "n"]')).out
    assert "[pet] owner is in keep, and 3 of its values are ids of rows of hero that stay away (match)" in refused
    merging(urls, *edits, (kept, 'of.hero_id = "hero"\nof.owner = "hero"\nkeep = ["n"]'), code=0)
    right = "SELECT count(*) FROM pet p JOIN hero h ON h.id = p.hero_id AND h.id = p.owner WHERE h.n = p.n"
    assert rows_of(urls[0], right) == [(16,)]
    assert [rows_of(urls[0], f"SELECT count(*) FROM {name}") for name in ("hero", "flag")] == [[(13,)], [(13,)]]


def test_a_sequence_that_a_default_names_by_a_text_is_counted(two: Two, merging: Cli) -> None:
    tables: Tables = {"t (id int DEFAULT nextval('s'::text) PRIMARY KEY, n text)": lambda s: [f"DEFAULT, '{s}'"]}
    urls = two("postgresql", tables, "CREATE SEQUENCE s")
    merging(urls, code=0)
    execute(urls[0], "INSERT INTO t (n) VALUES ('new')")
    assert rows_of(urls[0], "SELECT id FROM t ORDER BY id") == [(1,), (11,), (12,)]
