"""Refusals before the first row: all of them at once, each with what to write."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.exit_codes import ExitCode
from tests.merge import game
from tests.merge.conftest import schema_of
from tests.support.statements import execute, rows_of

Two = Callable[..., tuple[str, str]]
Cli = Callable[..., Any]


@pytest.fixture
def changed(sqlite_server: Any, tmp_path: Path, offline: Cli) -> Callable[..., Any]:
    """Change lines of the map of two servers of a game, and return the result of the command."""
    urls = sqlite_server.new_database(), sqlite_server.new_database()
    for url, side in zip(urls, "AB", strict=True):
        game.fill(url, "sqlite", side, 30)
    schema = schema_of(offline("merge", "draft", *urls).out)

    def run(*edits: tuple[str, str], statements: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> Any:
        text = game.MAP
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        execute(urls[1], *statements)
        path = game.write_map(tmp_path / "game.map", "sqlite", schema, text)
        before = rows_of(urls[0], "SELECT * FROM characters")
        done = offline("merge", "run", str(path), *urls, *options)
        assert rows_of(urls[0], "SELECT * FROM characters") == before
        return done

    return run


@pytest.fixture
def refused(changed: Callable[..., Any]) -> Callable[..., str]:
    """Change lines of the map of two servers of a game, and return what is refused."""

    def run(*edits: tuple[str, str], statements: tuple[str, ...] = ()) -> str:
        done = changed(*edits, statements=statements)
        assert done.code == ExitCode.MERGE_REFUSED, done.out
        return str(done.out + done.err)

    return run


LINES = {
    "the map is not reviewed": [("reviewed = true", "reviewed = false")],
    "the columns are not those": [('schema = "SCHEMA"', 'schema = "0123"')],
    "[houses] is not in the map": [('[houses]\nrows = "skip"\n', "")],
    "[palaces] is in the map, and there is no such table": [("[houses]", "[palaces]\nrows = \"skip\"\n[houses]")],
    "[guilds] leader is undecided (ask)": [('id = ["id", "leader"]', 'id = ["id"]\nask = ["leader"]')],
    "[guilds] leader is not in the map": [('id = ["id", "leader"]', 'id = ["id"]')],
    "[guilds] leader stands there twice": [('keep = ["title"]', 'keep = ["title", "leader"]')],
    "[guilds] there is no column motto": [('keep = ["title"]', 'keep = ["title", "motto"]')],
    '[guilds] rows = "?"': [('[guilds]\nrows = "copy"', '[guilds]\nrows = "?"')],
    "taken.name is undecided": [("TAKEN", "?")],
    "orders is no word of a map": [('keep = ["title"]', 'keep = ["title"]\norders = ["x"]')],
    "keep = 'title': write a list": [('keep = ["title"]', 'keep = "title"')],
    "color is no word at the top": [("reviewed = true", 'reviewed = true\ncolor = "red"')],
    "guilds is no table with match": [('of.kind = "kinds"', 'of.kind = "guilds"')],
    "there is no :offset_ranks2": [("owner_id + :offset END", "owner_id + :offset_ranks2 END")],
    "own.rank_id = \"ranks\": the column does not move": [
        ('id = ["character_id", "rank_id"]', 'id = ["character_id"]\nkeep = ["rank_id"]')
    ],
    # a foreign key whose ends do not move alike, in each direction
    "[characters] guild_id is in keep, and refers to guilds.id, which is in id": [
        ('id = ["id", "partner", "guild_id"]', 'id = ["id", "partner"]'),
        ('keep = ["account_id"', 'keep = ["guild_id", "account_id"'),
    ],
    "[characters] account_id is in id, and refers to accounts.id, which is in keep": [
        ('id = ["id", "partner"', 'id = ["account_id", "id", "partner"'),
        ('keep = ["account_id", ', "keep = ["),
    ],
    'write of.kind = "kinds"': [('of.kind = "kinds"', ""), ('[items]\nrows = "copy"\nid = ["id"', '[items]\nrows = "copy"\nid = ["kind", "id"')],
    "have the name of a row that is there, such as 'Bob'. taken.name = \"name || '-2'\" gives": [('taken.name = "TAKEN"\n', "")],
    "have the id of a row that is there": [
        ('[ranks]\nrows = "copy"\nid = ["id"]\nown.id = "ranks"\nkeep = ["title"]', '[ranks]\nrows = "copy"\nkeep = ["id", "title"]'),
    ],
}  # fmt: skip


@pytest.mark.parametrize("says", LINES)
def test_each_wrong_line_is_named_with_what_to_write(refused: Callable[..., str], says: str) -> None:
    assert says in refused(*LINES[says])


OWN = 'id = ["character_id", "rank_id"]\nown.rank_id = "ranks"'
CARELESS = {
    'partner is in flake, and ids of characters.id, which moves otherwise: write id = ["partner"]': [
        ('id = ["id", "partner", "guild_id"]', 'id = ["id", "guild_id"]'), ('flake = ["flake"]', 'flake = ["flake", "partner"]')
    ],
    'partner is in of, and ids of characters.id, which moves otherwise: write id = ["partner"]': [
        ('id = ["id", "partner", "guild_id"]', 'id = ["id", "guild_id"]\nof.partner = "kinds"')
    ],
    'rank_id is in id, and ids of ranks.id, which moves otherwise: write id = ["rank_id"], own.rank_id = "ranks"': [
        ('\nown.rank_id = "ranks"', "")
    ],
    'owner_id is in id, and ids of characters.id, which moves otherwise: write sql.owner_id = "…"': [
        ('id = ["id", "partner", "guild_id"]', 'id = ["partner", "guild_id"]\nsql.id = "id + :offset"'),
        ('sql.owner_id = "CASE WHEN place = \'SHOP\' THEN owner_id ELSE owner_id + :offset END"', 'id = ["id", "owner_id"]'),
        ('[items]\nrows = "copy"\nid = ["id"]', '[items]\nrows = "copy"'),
    ],
    'id is in flake, and key: move it to id': [('id = ["id"]\nown.id = "ranks"', 'flake = ["id"]'), (OWN, OWN.partition("\n")[0])],
    "next_id is in id, and the next number of items.id (top), or an amount?: move it to top": [('top = [', "id = [")],
    "skipped: 19 rows of houses": [],
}  # fmt: skip


@pytest.mark.parametrize("says", CARELESS)
def test_each_careless_line_that_can_be_run_is_named_in_the_verdict(changed: Callable[..., Any], says: str) -> None:
    done = changed(*CARELESS[says], options=("--dry-run",))
    assert done.code == 0, done.out
    assert says in " ".join(done.out.split())


def test_everything_is_refused_at_once(refused: Callable[..., str]) -> None:
    said = refused(("reviewed = true", "reviewed = false"), ('keep = ["title"]', 'keep = ["title", "motto"]'))
    assert "2 refusals" in said
    assert "reviewed = true" in said
    assert "motto" in said


def test_columns_without_values_when_the_map_was_made_are_refused_with_values(refused: Callable[..., str]) -> None:
    said = refused(statements=("UPDATE characters SET mount_id = 5 WHERE id = 2",))
    assert "[characters] mount_id had no values when the map was made, and has 1 now: id or keep?" in said


def test_a_keep_that_the_evidence_speaks_against_is_refused_until_it_is_sure(two: Two, merging: Cli) -> None:
    rows = "; ".join(f"INSERT INTO item (owner) VALUES ({i % 40 + 1})" for i in range(100))
    people = {s: ";".join(f"INSERT INTO people (name) VALUES ('{s}{i}')" for i in range(40)) for s in "AB"}
    urls = two(
        "sqlite",
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE item (id INTEGER PRIMARY KEY, owner INT)",
        f"{people['A']};{rows}",
        f"{people['B']};{rows}",
    )
    wrong = ('id   = ["id", "owner"]', 'id   = ["id"]\nkeep = ["owner"]')
    refused = merging(urls, wrong, code=ExitCode.MERGE_REFUSED)
    assert (
        '[item] owner is in keep, and ids of people.id: move what is an id to id, or write sure = ["owner"]'
        in refused.out
    )
    merging(urls, (wrong[0], f'{wrong[1]}\nsure = ["owner"]'), code=0)


def test_the_second_look_reads_all_over_a_large_table_and_names_those_it_did_not_read_whole(
    two: Two, merging: Cli
) -> None:
    def rows(side: str, start: int) -> str:
        people = ";".join(f"INSERT INTO people (name) VALUES ('{side}{i}')" for i in range(40))
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 15000)"
        # no number of the first rows is an id
        owner = "CASE WHEN i > 7500 THEN i % 40 + 1 ELSE 0 END"
        tables = {"item": f"{start} + i", "log": f"'x' || (7 * ({start} + i))"}
        return ";".join(
            (people, *(f"INSERT INTO {name} {numbers} SELECT {key}, {owner} FROM n" for name, key in tables.items()))
        )

    tables = (
        "CREATE TABLE item (id INTEGER PRIMARY KEY, owner INT); CREATE TABLE log (text TEXT PRIMARY KEY, owner INT)"
    )
    urls = two(
        "sqlite", f"CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);{tables}", rows("A", 0), rows("B", 90_000)
    )
    wrong = ('id   = ["id", "owner"]', 'id   = ["id"]\nkeep = ["owner"]')
    refused = merging(urls, wrong)
    assert (
        '[item] owner is in keep, and ids of people.id: move what is an id to id, or write sure = ["owner"]'
        in refused.out
    )
    sure = merging(urls, (wrong[0], f'{wrong[1]}\nsure = ["owner"]'))
    assert "looked at: 5,000 rows at most of item, log" in sure.out


@pytest.mark.parametrize(
    ("kind", "both", "second", "says"),
    [
        ("mariadb", "CREATE TABLE t (id TINYINT UNSIGNED PRIMARY KEY)", "INSERT INTO t VALUES (250)", "does not fit into t.id"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM", "", "ALTER TABLE `t` ENGINE=InnoDB, ROW_FORMAT=DEFAULT"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t MODIFY id BIGINT", "differs between"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY, n VARCHAR(9))", "ALTER TABLE t MODIFY n VARCHAR(9) COLLATE utf8mb4_bin", "utf8mb4_bin"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY); CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.id = NEW.id", "", "DROP TRIGGER `x`"),
        ("postgresql", "CREATE TABLE t (id int PRIMARY KEY, p oid)", "", "is an oid"),
        ("postgresql", "CREATE TABLE t (id int PRIMARY KEY); CREATE RULE r AS ON INSERT TO t DO ALSO NOTHING", "", "has a rule"),
        ("sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT UNIQUE ON CONFLICT IGNORE)", "", "ON CONFLICT"),
        ("sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY)", "CREATE TABLE snowredis_merge_map (x INT)", "snowredis 0.1 has changed ids there"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_merged_are_refused(
    two: Two, offline: Cli, tmp_path: Path, kind: str, both: str, second: str, says: str
) -> None:
    urls = two(kind, both, "", second)
    drafted = offline("merge", "draft", *urls)
    if drafted.code == 0:
        path = tmp_path / "game.map"
        path.write_text(drafted.out.replace("reviewed = false", "reviewed = true").replace('"?"', '"copy"'))
        drafted = offline("merge", "run", str(path), *urls)
    assert drafted.code == ExitCode.MERGE_REFUSED, drafted.out + drafted.err
    assert says in drafted.out + drafted.err


def test_one_database_and_two_kinds_are_refused(sqlite_server: Any, postgresql_server: Any, offline: Cli) -> None:
    url = sqlite_server.new_database()
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert "are one database" in offline("merge", "draft", url, url).err
    other = postgresql_server.new_database()
    assert "both databases must be of one kind" in offline("merge", "draft", url, other).err


def test_a_file_that_is_no_map_is_refused(tmp_path: Path, offline: Cli) -> None:
    path = tmp_path / "game.map"
    for text in (None, "rows ="):
        if text:
            path.write_text(text)
        done = offline("merge", "run", str(path), "sqlite:///a", "sqlite:///b")
        assert (done.code, "is not a map" in done.err) == (ExitCode.MERGE_REFUSED, True)


def test_a_table_that_only_the_second_database_has_is_never_passed_over(two: Two, merging: Cli) -> None:
    urls = two("sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY)", "", "CREATE TABLE extra (id INTEGER PRIMARY KEY)")
    assert "[extra] is only in the second database" in merging(urls, code=ExitCode.MERGE_REFUSED).out
    assert merging(urls, ('rows = "?"', 'rows = "skip"')).code == 0


def test_a_key_to_names_that_change_where_they_are_taken_is_refused(two: Two, merging: Cli) -> None:
    tables = (
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT UNIQUE, level INT);"
        "CREATE TABLE pet (id INTEGER PRIMARY KEY, owner TEXT REFERENCES people (name))"
    )
    rows = "INSERT INTO people VALUES (1, 'Bob', 5); INSERT INTO pet VALUES (1, 'Bob')"
    urls = two("sqlite", tables, rows, rows.replace("5", "6"))
    refused = merging(urls, ('taken.name = "?"', "taken.name = \"name || '-2'\""))
    assert "[pet] owner refers to people.name, whose taken names change" in refused.out, refused.out + refused.err


def test_a_second_run_is_refused_for_tables_without_ids_too(two: Two, merging: Cli) -> None:
    urls = two("sqlite", "CREATE TABLE log (what TEXT, at TEXT)", "", "INSERT INTO log VALUES ('a', 'b')")
    assert merging(urls).code == 0
    assert "this second database was merged at" in merging(urls, options=()).err
    assert rows_of(urls[0], "SELECT count(*) FROM log") == [(1,)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_a_counter_in_a_table_of_one_row_needs_no_key(two: Two, merging: Cli, kind: str) -> None:
    tables = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE hibernate_sequence (next_val BIGINT PRIMARY KEY)"
    rows = {
        side: ";".join(f"INSERT INTO t VALUES ({i}, '{side}{i}')" for i in range(1, 31))
        + ";INSERT INTO hibernate_sequence VALUES (31)"
        for side in "AB"
    }
    urls = two(kind, tables, rows["A"], rows["B"])
    merging(
        urls,
        ("[hibernate_sequence]", "[hibernate_sequence]"),
        ('ask  = ["next_val"]', 'top  = ["next_val"]'),
        ('rows = "copy"\ntop ', 'rows = "first"\ntop '),
        code=0,
    )
    assert rows_of(urls[0], "SELECT next_val FROM hibernate_sequence") == [(131,)]


GUILDS = (
    "CREATE TABLE guilds (id INTEGER PRIMARY KEY, name VARCHAR(20));"
    "CREATE TABLE hero (id INTEGER PRIMARY KEY, name VARCHAR(20), guild_id INTEGER)"
)


def guilds(side: str) -> str:
    """Return seven guilds, of which one is on both servers under two ids, and a hero of each but one."""
    known = 3 if side == "A" else 5
    rows = [f"INSERT INTO guilds VALUES ({i}, '{'Legends' if i == known else f'{side}{i}'}')" for i in range(1, 8)]
    rows += [f"INSERT INTO hero VALUES ({i}, '{side}{i}', {i % 8})" for i in range(1, 41)]
    return ";".join(rows)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_a_column_with_ids_of_matched_rows_is_refused_until_it_is_of(two: Two, merging: Cli, kind: str) -> None:
    urls = two(kind, GUILDS, guilds("A"), guilds("B"))
    matched, drafted = ("[guilds]\n", '[guilds]\nmatch = ["name"]\n'), 'id   = ["id", "guild_id"]\nkeep = ["name"]'
    for rule, wrong in (("id", drafted), ("keep", 'id   = ["id"]\nkeep = ["name", "guild_id"]')):
        refused = merging(urls, matched, (drafted, wrong), code=ExitCode.MERGE_REFUSED)
        found = f"[hero] guild_id is in {rule}, and 5 of its values are ids of rows of guilds that stay away (match)"
        assert f'{found}: write of.guild_id = "guilds", or write sure = ["guild_id"]' in refused.out
    right = 'id   = ["id"]\nkeep = ["name"]\nof.guild_id = "guilds"'
    assert "look again" not in merging(urls, matched, (drafted, right), code=0).out
    assert rows_of(urls[0], "SELECT count(*) FROM hero WHERE guild_id = 3") == [(10,)]
    lost = "SELECT count(*) FROM hero WHERE guild_id > 0 AND guild_id NOT IN (SELECT id FROM guilds)"
    assert rows_of(urls[0], lost) == [(0,)]


def test_a_column_that_may_have_ids_of_matched_rows_is_named_in_the_verdict(two: Two, merging: Cli) -> None:
    tables = "CREATE TABLE gift (id INTEGER PRIMARY KEY, of_whom INTEGER)"
    rows = ";".join(f"INSERT INTO gift VALUES ({i}, {i % 7 + 1})" for i in range(1, 15))
    urls = two("sqlite", f"{GUILDS};{tables}", f"{guilds('A')};{rows}", f"{guilds('B')};{rows}")
    edits = (
        ("[guilds]\n", '[guilds]\nmatch = ["name"]\n'),
        ('id   = ["id", "guild_id"]\nkeep = ["name"]', 'id   = ["id"]\nkeep = ["name"]\nof.guild_id = "guilds"'),
        ('id   = ["id"]\nkeep = ["of_whom"]', 'id   = ["id", "of_whom"]'),
        ('rows = "?"', 'rows = "copy"'),
    )
    done = merging(urls, *edits, options=("--dry-run",), code=0)
    assert "of_whom is in id, and 2 of its values are ids of rows of guilds" in " ".join(done.out.split())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_a_column_of_nothing_but_0_and_minus_1_has_no_values(two: Two, merging: Cli, kind: str) -> None:
    tables = "CREATE TABLE hero (id INTEGER PRIMARY KEY, name VARCHAR(20), party_id INTEGER, team_id NUMERIC(20))"
    rows = {
        s: ";".join(f"INSERT INTO hero VALUES ({i}, '{s}{i}', {-(i % 2)}, {-(i % 2)})" for i in (1, 2)) for s in "AB"
    }
    urls = two(kind, tables, rows["A"], rows["B"])
    merging(urls, ('none = ["party_id", "team_id"]', 'none = ["party_id", "team_id"]'), code=0)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_texts_with_digits_that_would_not_move_are_refused(two: Two, merging: Cli, kind: str) -> None:
    rows = "INSERT INTO t VALUES ('000012', ' 7'), ('12', '-7'), ('0', '1234567890123456789')"
    urls = two(kind, "CREATE TABLE t (people_id CHAR(30), pet VARCHAR(30))", "", rows)
    drafted, wrong = 'keep = ["people_id", "pet"]', 'id = ["people_id", "pet"]'
    said = merging(urls, (drafted, wrong)).out
    what = "are no plain numbers, such as"
    assert f"[t] 1 values of people_id have digits, but {what} '000012" in said, said
    assert f"[t] 1 values of pet have digits, but {what} ' 7', and would stay: write sql.pet" in said
    merging(urls, (drafted, f'{wrong}\nsure = ["people_id", "pet"]'), code=0)
    plus = 1234567890123457000
    moved = ("000012", " 7"), ("0", str(1234567890123456789 + plus)), (str(12 + plus), "-7")
    assert sorted((a.rstrip(), b) for a, b in rows_of(urls[0], "SELECT * FROM t")) == sorted(moved)


def test_an_id_that_is_only_a_part_of_a_value_or_of_a_layout_is_named(two: Two, merging: Cli) -> None:
    tables = (
        "CREATE TABLE hero (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE flake (id BIGINT PRIMARY KEY, name TEXT);"
        "CREATE TABLE t (s TEXT, kind TEXT, target_id INTEGER, flake_id TEXT)"
    )
    base = 1_300_000_000_000_000_000
    rows = {
        s: ";".join(
            [f"INSERT INTO hero VALUES ({i}, '{s}{i}')" for i in range(1, 61)]
            + [f"INSERT INTO flake VALUES ({base + (i << 22)}, '{s}')" for i in range(1, 61)]
            + [f"INSERT INTO t VALUES ('{s}{i}', 'hero', {i}, '{base + (i << 22)}')" for i in range(1, 61)]
            + [f"INSERT INTO t VALUES ('{s}{i}', 'npc', {90_000 + i}, '')" for i in range(1, 61)]
        )
        for s in "AB"
    }
    urls = two("sqlite", tables, rows["A"], rows["B"])
    drafted = 'flake = ["flake_id"]\nkeep = ["s", "kind"]\nask  = ["target_id"]'
    done = merging(urls, (drafted, 'keep = ["s", "kind"]\nid = ["target_id", "flake_id"]'), options=("--dry-run",))
    said = " ".join(done.out.split())
    assert "[t] target_id is in id, and 50% of its values are ids, all where kind is hero: move it to sql" in said, said
    assert "[t] flake_id is in id, and digits: ids of flake.id: move it to flake" in said


def test_keys_of_several_columns_that_move_are_ids_of_others(two: Two, merging: Cli) -> None:
    tables = (
        "CREATE TABLE hero (realm INT, id INT, name TEXT, PRIMARY KEY (realm, id)) WITHOUT ROWID;"
        "CREATE TABLE pet (name TEXT, hero_id INT)"
    )
    rows = {
        s: ";".join(
            f"INSERT INTO hero VALUES ({n % 2}, {n}, '{s}{n}'); INSERT INTO pet VALUES ('{s}{n}', {n})"
            for n in range(1, 61)
        )
        for s in "AB"
    }
    urls = two("sqlite", tables, rows["A"], rows["B"])
    kept = ('id   = ["hero_id"]\nkeep = ["name"]', 'keep = ["hero_id", "name"]')
    assert "[pet] hero_id is in keep, and ids of hero.id: move what is an id to id" in merging(urls, kept).out


def test_doubts_about_one_table_are_one_line_with_the_list_that_settles_them(two: Two, merging: Cli) -> None:
    tables = "CREATE TABLE hero (id INTEGER PRIMARY KEY, name TEXT, fame INT, wins INT, foes TEXT)"
    rows = {
        s: ";".join(f"INSERT INTO hero VALUES ({i}, '{s}{i}', {i}, {41 - i}, '{s} foe {i}')" for i in range(1, 41))
        for s in "AB"
    }
    urls = two("sqlite", tables, rows["A"], rows["B"])
    drafted, kept = 'keep = ["name"]\nask  = ["fame", "wins", "foes"]', 'keep = ["name", "fame", "wins", "foes"]'
    said = " ".join(merging(urls, (drafted, kept), options=("--dry-run",)).out.split())
    assert said.count("look again: ") == 1
    assert "look again: [hero] in keep are fame, wins: its values fill hero.id" in said
    sure = 'sure = ["fame", "wins", "foes"]'
    assert "; foes: ids of hero.id inside (number 1)" in said
    assert f"move what is an id to id, or write {sure}" in said
    assert "look again" not in merging(urls, (drafted, f"{kept}\n{sure}"), options=("--dry-run",)).out


@pytest.mark.parametrize(
    "remedy", ['rows = "first"\nkey = ["owner", "kind"]', 'rows = "copy"\nmatch = ["owner", "kind"]']
)
def test_each_remedy_for_a_key_that_both_have_can_be_run(two: Two, merging: Cli, remedy: str) -> None:
    tables = "CREATE TABLE t (id uuid PRIMARY KEY, owner text, kind int, note text, UNIQUE (owner, kind))"
    rows = {s: f"INSERT INTO t VALUES ('{at * 32}', 'bob', 70000, '{s}')" for s, at in (("A", "1"), ("B", "2"))}
    urls = two("postgresql", tables, rows["A"], rows["B"])
    said = merging(urls, ('rows = "?"', 'rows = "copy"')).out
    assert all(
        f"{line}: " in said for line in remedy.replace("\n", ", ").removeprefix('rows = "copy", ').splitlines()
    ), said
    done = merging(urls, ('rows = "?"', remedy))
    assert (done.code, rows_of(urls[0], "SELECT note FROM t")) == (0, [("A",)]), done.out + done.err


def test_rows_that_stay_are_not_left_to_lead_to_ids_that_move(two: Two, merging: Cli) -> None:
    """A world that both have, by "first", beside a table of ids alone, which looks the same in any two databases."""
    tables = (
        "CREATE TABLE shop (shopid INTEGER PRIMARY KEY AUTOINCREMENT, npcid INT);"
        "CREATE TABLE offer (offer INTEGER PRIMARY KEY, shopid INT, price REAL)"
    )
    rows = ";".join(
        [f"INSERT INTO shop VALUES ({i}, {9000 + i})" for i in range(1, 21)]
        + [f"INSERT INTO offer VALUES ({i}, {i % 20 + 1}, {i}.5)" for i in range(1, 121)]
    )
    urls = two("sqlite", tables, rows, rows)
    assert '[shop] rows = "?"' in merging(urls).out
    refused = merging(urls, ('rows = "?"', 'rows = "copy"'))
    assert "[offer] shopid is in keep, and ids of shop.shopid" in refused.out, refused.out


def test_a_world_that_would_be_there_twice_is_named_in_the_verdict(two: Two, merging: Cli) -> None:
    rows = ";".join(f"INSERT INTO town (street, x) VALUES ('street {chr(64 + i)}', {i}.5)" for i in range(1, 27))
    urls = two("sqlite", "CREATE TABLE town (id INTEGER PRIMARY KEY, street TEXT, x REAL)", rows, rows)
    done = merging(urls, ('rows = "first"\nkeep = ["id", ', 'rows = "copy"\nid = ["id"]\nkeep = ['))
    said = '[town] rows is "copy", and 26 of 26 rows are the same in both databases'
    assert (done.code, said in " ".join(done.out.split())) == (0, True), done.out + done.err


def test_a_match_by_few_values_is_refused_in_one_line(two: Two, merging: Cli) -> None:
    rows = ";".join(f"INSERT INTO log VALUES ({i}, 'reason {i % 3}')" for i in range(1, 41))
    urls = two("sqlite", "CREATE TABLE log (id INTEGER PRIMARY KEY, reason TEXT)", rows, rows)
    refused = merging(urls, ("[log]\n", '[log]\nmatch = ["reason"]\n'), ('rows = "?"', 'rows = "copy"'))
    said = "[log] match: rows of the second are each several of the first, such as those with id "
    assert refused.out.startswith(said), refused.out
    assert len(refused.out.splitlines()) == 2, refused.out


def test_a_tree_is_not_matched_by_ids_of_its_own(two: Two, merging: Cli) -> None:
    rows = {s: f"INSERT INTO tree VALUES (1, NULL, '{s}'), (2, 1, 'a'), (3, 1, '{s} b')" for s in "AB"}
    urls = two("sqlite", "CREATE TABLE tree (id INTEGER PRIMARY KEY, parent INTEGER, name TEXT)", rows["A"], rows["B"])
    drafted = 'id   = ["id"]\nkeep = ["parent", "name"]'
    tree = 'id   = ["id"]\nkeep = ["name"]\nof.parent = "tree"'
    refused = merging(urls, (drafted, f'match = ["parent", "name"]\n{tree}')).out
    assert "match of tree: by ids of matched rows not known yet: take other columns" in refused
    done = merging(urls, (drafted, f'match = ["name"]\n{tree}'), options=("--dry-run",))
    assert "stayed away: 1 rows of tree" in done.out, done.out + done.err


def test_ids_of_a_table_of_two_rows_are_never_called_ids_of_no_table(two: Two, merging: Cli) -> None:
    tables = (
        "CREATE TABLE alliance (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE hero (id INTEGER PRIMARY KEY, name TEXT, alliance_id INTEGER)"
    )
    rows = {
        s: ";".join(
            [f"INSERT INTO alliance VALUES ({i}, '{s}{i}')" for i in (1, 2)]
            + [f"INSERT INTO hero VALUES ({i}, '{s}{i}', {i % 3})" for i in range(1, 41)]
        )
        for s in "AB"
    }
    urls = two("sqlite", tables, rows["A"], rows["B"])
    drafted, wrong = 'id   = ["id", "alliance_id"]\nkeep = ["name"]', 'id   = ["id"]\nkeep = ["name", "alliance_id"]'
    assert "look again" not in merging(urls, options=("--dry-run",)).out
    kept = merging(urls, (drafted, wrong), options=("--dry-run",))
    assert "alliance_id is in keep, and ids of alliance.id: move what is an id to id" in " ".join(kept.out.split())


def test_a_key_of_first_characters_that_two_rows_would_have_is_said_by_the_database(two: Two, merging: Cli) -> None:
    tables = "CREATE TABLE t (id INT PRIMARY KEY, n TEXT, UNIQUE KEY (n(3)))"
    urls = two("mariadb", tables, "INSERT INTO t VALUES (1, 'abc1')", "INSERT INTO t VALUES (1, 'abc2'), (2, 'xyz')")
    refused = merging(urls, code=ExitCode.MERGE_REFUSED)
    assert "nothing was changed; two rows would have one key" in " ".join(refused.err.split())
    execute(urls[1], "DELETE FROM t WHERE id = 1")
    merging(urls, code=0)
    assert rows_of(urls[0], "SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_expressions_that_the_database_does_not_know_are_refused_all_at_once(two: Two, merging: Cli, kind: str) -> None:
    urls = two(kind, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "", "INSERT INTO t VALUES (1, 2, 3)")
    texts = 'sql.a = "aa + :offset"\nsql.b = "nothing(b)"'
    refused = merging(urls, ('"a", "b"', '"id"'), ('id   = ["id"]', ""), ('"id"]', f'"id"]\n{texts}'))
    assert refused.code == ExitCode.MERGE_REFUSED
    assert re.findall(r"^\[t\] (sql\.\w): ", refused.out, re.MULTILINE) == ["sql.a", "sql.b"], refused.out + refused.err
