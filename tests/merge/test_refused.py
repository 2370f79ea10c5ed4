"""Refusals before the first row: all of them at once, each with what to write."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.exit_codes import ExitCode
from tests.merge import game
from tests.merge.conftest import Cli, Two, empty, schema_of
from tests.support.statements import Rows, Tables, execute, rows_of

KINDS = ["sqlite", "postgresql", "mariadb"]
HERO = "hero (id INTEGER PRIMARY KEY, name VARCHAR(20))"
DRY = ("--dry-run",)


def named(*ids: int) -> Rows:
    """Return rows that have an id and a name."""
    return lambda side: (f"{i}, '{side}{i}'" for i in ids)


def said(done: Any) -> str:
    return " ".join(done.out.split())


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
    "orders is no word of a map": [('keep = ["title"]', 'keep = ["title"]\norders = ["x"]')],
    "keep = 'title': write a list": [('keep = ["title"]', 'keep = "title"')],
    '[guilds] top = ["leader"]: only of rows = "first"': [('id = ["id", "leader"]', 'id = ["id"]\ntop = ["leader"]')],
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
    'partner is in flake, and ids of characters.id: move it to id': [
        ('id = ["id", "partner", "guild_id"]', 'id = ["id", "guild_id"]'), ('flake = ["flake"]', 'flake = ["flake", "partner"]')
    ],
    'partner is in of, and ids of characters.id: move it to id': [
        ('id = ["id", "partner", "guild_id"]', 'id = ["id", "guild_id"]\nof.partner = "kinds"')
    ],
    'rank_id is in id, and ids of ranks.id: write id = ["rank_id"], own.rank_id = "ranks"': [
        ('\nown.rank_id = "ranks"', "")
    ],
    'owner_id is in id, and ids of characters.id: write sql.owner_id = "…"': [
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
    done = changed(*CARELESS[says], options=DRY)
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


OWNERS = ('id   = ["id", "owner"]', 'id   = ["id"]\nkeep = ["owner"]')
SURE_OWNERS = (OWNERS[0], f'{OWNERS[1]}\nsure = ["owner"]')
OWNERS_REFUSED = '[item] owner is in keep, and ids of people.id: move it to id, or write sure = ["owner"]'
PEOPLE = "people (id INTEGER PRIMARY KEY, name TEXT)"
ITEM = "item (id INTEGER PRIMARY KEY, owner INT)"


# dense numbers within a key, which stay, are likelier than ids with gaps
RECIPE: Tables = {
    "recipe (book INT, id INT, PRIMARY KEY (book, id)) WITHOUT ROWID": lambda s: (
        f"{ord(s)}{i}00, {i}" for i in range(41)
    )
}


@pytest.mark.parametrize(("others", "whose"), [({}, "people"), (RECIPE, "recipe")])
def test_a_keep_that_the_evidence_speaks_against_is_refused_until_it_is_sure(
    two: Two, merging: Cli, others: Tables, whose: str
) -> None:
    tables: Tables = {PEOPLE: named(*range(1, 44)), ITEM: lambda _: (f"{i + 1}, {i % 40 + 1}" for i in range(100))}
    urls = two("sqlite", {**tables, **others})
    assert OWNERS_REFUSED.replace("people", whose) in merging(urls, OWNERS, code=ExitCode.MERGE_REFUSED).out
    merging(urls, SURE_OWNERS, code=0)


def test_the_second_look_reads_all_over_a_large_table_and_names_those_it_did_not_read_whole(
    two: Two, merging: Cli
) -> None:
    def rows(key: str) -> Rows:
        # no number of the first rows is an id
        owners = [(i, i % 40 + 1 if i > 7_500 else 0) for i in range(1, 15_001)]
        return lambda side: (f"{key.format(90_000 * (side == 'B') + i)}, {owner}" for i, owner in owners)

    urls = two(
        "sqlite",
        {PEOPLE: named(*range(1, 41)), ITEM: rows("{}"), "log (text TEXT PRIMARY KEY, owner INT)": rows("'x{}7'")},
    )
    assert OWNERS_REFUSED in merging(urls, OWNERS).out
    assert "looked at: 5,000 rows at most of item, log" in merging(urls, SURE_OWNERS).out


@pytest.mark.parametrize(
    ("kind", "both", "second", "says"),
    [
        ("mariadb", "CREATE TABLE t (id TINYINT UNSIGNED PRIMARY KEY)", "INSERT INTO t VALUES (250)", "does not fit into t.id"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM", "", "ALTER TABLE `t` ENGINE=InnoDB, ROW_FORMAT=DEFAULT"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t MODIFY id BIGINT", "differs between"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY, n VARCHAR(9))", "ALTER TABLE t MODIFY n VARCHAR(9) COLLATE utf8mb4_bin", "utf8mb4_bin"),
        ("mariadb", "CREATE TABLE t (id INT PRIMARY KEY); CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.id = NEW.id", "", "DROP TRIGGER `x`"),
        ("postgresql", 'CREATE SCHEMA a; CREATE TABLE a.t (id int); CREATE TABLE "a.t" (id int)', "", "called as another table"),
        ("postgresql", "CREATE TABLE t (n int GENERATED ALWAYS AS (1) STORED)", "", "no column that can be written"),
        ("postgresql", "CREATE TABLE t (id int PRIMARY KEY, p oid)", "", "is an oid"),
        ("postgresql", "CREATE TABLE t (id int PRIMARY KEY); CREATE RULE r AS ON INSERT TO t DO ALSO NOTHING", "", "has a rule"),
        ("sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT UNIQUE ON CONFLICT IGNORE)", "", "ON CONFLICT"),
        ("sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY)", "CREATE TABLE snowredis_merge_map (x INT)", "snowredis 0.1 has changed ids there"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_merged_are_refused(
    two: Two, offline: Cli, tmp_path: Path, kind: str, both: str, second: str, says: str
) -> None:
    urls = two(kind, {}, both, second)
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
    tables: Tables = {"t (id INTEGER PRIMARY KEY)": empty}
    urls = two("sqlite", tables, "", "CREATE TABLE extra (id INTEGER PRIMARY KEY)")
    assert "[extra] is only in the second database" in merging(urls, code=ExitCode.MERGE_REFUSED).out
    assert merging(urls, ('rows = "?"', 'rows = "skip"')).code == 0


def test_a_key_to_names_that_change_where_they_are_taken_is_refused(two: Two, merging: Cli) -> None:
    tables: Tables = {
        "people (id INTEGER PRIMARY KEY, name TEXT UNIQUE, level INT)": lambda s: [f"1, 'Bob', {5 + (s == 'B')}"],
        "pet (id INTEGER PRIMARY KEY, owner TEXT REFERENCES people (name))": lambda _: ["1, 'Bob'"],
    }
    refused = merging(two("sqlite", tables), ('"level"]', '"level"]\ntaken.name = "name || \'-2\'"'))
    assert "[pet] owner refers to people.name, whose taken names change" in refused.out, refused.out + refused.err


def test_a_second_run_is_refused_for_tables_without_ids_too(two: Two, merging: Cli) -> None:
    urls = two("sqlite", {"log (what TEXT, at TEXT)": lambda s: ["'a', 'b'"] * (s == "B")})
    assert merging(urls).code == 0
    assert "this second database was merged at" in merging(urls).err
    assert rows_of(urls[0], "SELECT count(*) FROM log") == [(1,)]


def test_rows_that_the_first_does_not_have_are_no_reason_to_refuse_a_second_run(
    two: Two, merging: Cli, offline: Cli, tmp_path: Path
) -> None:
    urls = two("sqlite", {"flag (name TEXT PRIMARY KEY)": lambda side: [f"'{side}'"]})
    merging(urls, ('rows = "copy"', 'rows = "first"'), code=0)
    offline("merge", "run", str(tmp_path / "game.map"), *urls, code=0)
    assert rows_of(urls[0], "SELECT name FROM flag ORDER BY name") == [("A",), ("B",)]


def test_a_row_that_leads_to_a_table_that_only_the_first_database_has_is_refused(two: Two, merging: Cli) -> None:
    tables: Tables = {
        "world (id INTEGER PRIMARY KEY)": lambda _: ["1"],
        "house (id INTEGER PRIMARY KEY, world INTEGER REFERENCES world (id))": lambda s: [
            "1, 1" if s == "A" else "2, 7"
        ],
    }
    edits = ('"id", "world"]', '"id"]\nkeep = ["world"]'), ('rows = "copy"\nid   = ["id"]\n', 'rows = "skip"\n')
    refused = merging(two("sqlite", tables, "", "DROP TABLE world"), *edits[::-1])
    assert "[house] 1 rows came whose world leads to no row of world" in refused.out, refused.out + refused.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_counter_in_a_table_of_one_row_needs_no_key(two: Two, merging: Cli, kind: str) -> None:
    tables: Tables = {HERO: named(*range(1, 31)), "hibernate_sequence (next_val BIGINT PRIMARY KEY)": lambda _: ["31"]}
    urls = two(kind, tables)
    merging(
        urls, ('ask  = ["next_val"]', 'top  = ["next_val"]'), ('rows = "copy"\ntop ', 'rows = "first"\ntop '), code=0
    )
    assert rows_of(urls[0], "SELECT next_val FROM hibernate_sequence") == [(131,)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_counter_may_be_one_of_several_texts(two: Two, merging: Cli, kind: str) -> None:
    settings = "setting (name VARCHAR(20) PRIMARY KEY, value TEXT)"
    urls = two(kind, {HERO: named(*range(1, 31)), settings: lambda _: ["'next_hero', '31'", "'title', 'x'"]})
    merging(urls, ('keep = ["name", "value"]', 'keep = ["name"]\ntop = ["value"]'), code=0)
    assert rows_of(urls[0], "SELECT value FROM setting ORDER BY name") == [("131",), ("x",)]


# seven guilds, of which one is on both servers under two ids, and a hero of each but one
GUILDS: Tables = {
    "guilds (id INTEGER PRIMARY KEY, name VARCHAR(20))": lambda s: (
        f"{i}, '{'Legends' if (s, i) in (('A', 3), ('B', 5)) else f'{s}{i}'}'" for i in range(1, 8)
    ),
    "hero (id INTEGER PRIMARY KEY, name VARCHAR(20), guild_id INTEGER)": lambda s: (
        f"{i}, '{s}{i}', {i % 8}" for i in range(1, 41)
    ),
}
GUILDS_MATCHED = ("[guilds]\n", '[guilds]\nmatch = ["name"]\n')
HEROES = 'id   = ["id", "guild_id"]\nkeep = ["name"]'
HEROES_OF = (HEROES, 'id   = ["id"]\nkeep = ["name"]\nof.guild_id = "guilds"')


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_with_ids_of_matched_rows_is_refused_until_it_is_of(two: Two, merging: Cli, kind: str) -> None:
    urls = two(kind, GUILDS)
    for rule, wrong in (("id", HEROES), ("keep", 'id   = ["id"]\nkeep = ["name", "guild_id"]')):
        refused = merging(urls, GUILDS_MATCHED, (HEROES, wrong), code=ExitCode.MERGE_REFUSED)
        found = f"[hero] guild_id is in {rule}, and 5 of its values are ids of rows of guilds that stay away (match)"
        assert f'{found}: write of.guild_id = "guilds", or write sure = ["guild_id"]' in refused.out
    assert "look again" not in merging(urls, GUILDS_MATCHED, HEROES_OF, code=0).out
    assert rows_of(urls[0], "SELECT count(*) FROM hero WHERE guild_id = 3") == [(10,)]
    lost = "SELECT count(*) FROM hero WHERE guild_id > 0 AND guild_id NOT IN (SELECT id FROM guilds)"
    assert rows_of(urls[0], lost) == [(0,)]


def test_a_column_that_may_have_ids_of_matched_rows_is_named_in_the_verdict(two: Two, merging: Cli) -> None:
    gifts: Tables = {
        "gift (id INTEGER PRIMARY KEY, of_whom INTEGER)": lambda _: (f"{i}, {i % 7 + 1}" for i in range(1, 15))
    }
    edits = (('id   = ["id"]\nkeep = ["of_whom"]', 'id   = ["id", "of_whom"]'), ('rows = "?"', 'rows = "copy"'))
    done = merging(two("sqlite", {**GUILDS, **gifts}), GUILDS_MATCHED, HEROES_OF, *edits, options=DRY, code=0)
    assert "of_whom is in id, and 2 of its values are ids of rows of guilds" in said(done)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_nothing_but_0_and_minus_1_has_no_values(two: Two, merging: Cli, kind: str) -> None:
    columns = "id INTEGER PRIMARY KEY, name VARCHAR(20), party_id INTEGER, team_id NUMERIC(20)"
    urls = two(kind, {f"hero ({columns})": lambda s: (f"{i}, '{s}{i}', {-(i % 2)}, {-(i % 2)}" for i in (1, 2))})
    merging(urls, ('none = ["party_id", "team_id"]', 'none = ["party_id", "team_id"]'), code=0)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_with_digits_that_would_not_move_are_refused(two: Two, merging: Cli, kind: str) -> None:
    rows = ["'000012', ' 7'", "'12', '-7'", "'0', '1234567890123456789'"]
    urls = two(kind, {"t (people_id CHAR(30), pet VARCHAR(30))": lambda s: rows * (s == "B")})
    drafted, wrong = 'keep = ["people_id", "pet"]', 'id = ["people_id", "pet"]'
    refused, what = merging(urls, (drafted, wrong)).out, "are no plain numbers, such as"
    assert f"[t] 1 values of people_id have digits, but {what} '000012" in refused, refused
    assert f"[t] 1 values of pet have digits, but {what} ' 7', and would stay: write sql.pet" in refused
    merging(urls, (drafted, f'{wrong}\nsure = ["people_id", "pet"]'), code=0)
    plus = 1234567890123457000
    moved = ("000012", " 7"), ("0", str(1234567890123456789 + plus)), (str(12 + plus), "-7")
    assert sorted((a.rstrip(), b) for a, b in rows_of(urls[0], "SELECT * FROM t")) == sorted(moved)


def test_an_id_that_is_only_a_part_of_a_value_or_of_a_layout_is_named(two: Two, merging: Cli) -> None:
    flakes = [1_300_000_000_000_000_000 + (i << 22) for i in range(61)]

    def targets(side: str) -> Iterator[str]:
        for i in range(1, 61):
            yield f"'{side}{i}', 'hero', {i}, '{flakes[i]}'"
            yield f"'{side}{i}', 'npc', {90_000 + i}, ''"

    tables: Tables = {
        HERO: named(*range(1, 61)),
        "flake (id BIGINT PRIMARY KEY, name TEXT)": lambda s: (f"{flake}, '{s}'" for flake in flakes[1:]),
        "t (s TEXT, kind TEXT, target_id INTEGER, flake_id TEXT)": targets,
    }
    drafted = 'flake = ["flake_id"]\nkeep = ["s", "kind"]\nask  = ["target_id"]'
    edit = (drafted, 'keep = ["s", "kind"]\nid = ["target_id", "flake_id"]')
    verdict = said(merging(two("sqlite", tables), edit, options=DRY))
    hero_only = "[t] target_id is in id, and 50% of its values are ids, all where kind is hero: move it to sql"
    assert hero_only in verdict, verdict
    assert "; flake_id is in id, and ids of flake.id: move it to flake" in verdict


def test_doubts_about_one_table_are_one_line_with_the_list_that_settles_them(two: Two, merging: Cli) -> None:
    columns = "id INTEGER PRIMARY KEY, name TEXT, fame INT, wins INT, foes TEXT"
    urls = two(
        "sqlite",
        {f"hero ({columns})": lambda s: (f"{i}, '{s}{i}', {i}, {41 - i}, '{s} foe {i}'" for i in range(1, 41))},
    )
    drafted, kept = 'keep = ["name"]\nask  = ["fame", "wins", "foes"]', 'keep = ["name", "fame", "wins", "foes"]'
    verdict = said(merging(urls, (drafted, kept), options=DRY))
    assert verdict.count("look again: ") == 1
    assert "look again: [hero] fame, wins are in keep, and its values fill hero.id" in verdict
    sure = 'sure = ["fame", "wins", "foes"]'
    assert "; foes is in keep, and ids of hero.id inside (number 1)" in verdict
    assert f"move it to sql, or write {sure}" in verdict
    assert "look again" not in merging(urls, (drafted, f"{kept}\n{sure}"), options=DRY).out


@pytest.mark.parametrize(
    "remedy", ['rows = "first"\nkey = ["owner", "kind"]', 'rows = "copy"\nmatch = ["owner", "kind"]']
)
def test_each_remedy_for_a_key_that_both_have_can_be_run(two: Two, merging: Cli, remedy: str) -> None:
    columns = "id uuid PRIMARY KEY, owner text, kind int, note text, UNIQUE (owner, kind)"
    urls = two("postgresql", {f"t ({columns})": lambda s: [f"'{f'{ord(s):02}' * 16}', 'bob', 70000, '{s}'"]})
    refused = merging(urls).out
    remedies = remedy.replace("\n", ", ").removeprefix('rows = "copy", ').splitlines()
    assert all(f"{line}: " in refused for line in remedies), refused
    done = merging(urls, ('rows = "copy"', remedy))
    assert (done.code, rows_of(urls[0], "SELECT note FROM t")) == (0, [("A",)]), done.out + done.err


def test_rows_that_stay_are_not_left_to_lead_to_ids_that_move(two: Two, merging: Cli) -> None:
    """A world that both have, by "first", beside a table of ids alone, which looks the same in any two databases."""
    tables: Tables = {
        "shop (shopid INTEGER PRIMARY KEY AUTOINCREMENT, npcid INT)": lambda _: (
            f"{i}, {9000 + i}" for i in range(1, 21)
        ),
        "offer (offer INTEGER PRIMARY KEY, shopid INT, price REAL)": lambda _: (
            f"{i}, {i % 20 + 1}, {i}.5" for i in range(1, 121)
        ),
    }
    urls = two("sqlite", tables)
    refused = merging(urls)
    assert "[offer] shopid is in keep, and ids of shop.shopid" in refused.out, refused.out


def test_a_world_that_would_be_there_twice_is_named_in_the_verdict(two: Two, merging: Cli) -> None:
    town = "town (id INTEGER PRIMARY KEY, street TEXT, x REAL)"
    urls = two("sqlite", {town: lambda _: (f"{i}, 'street {chr(64 + i)}', {i}.5" for i in range(1, 27))})
    done = merging(urls, ('rows = "first"\nkeep = ["id", ', 'rows = "copy"\nid = ["id"]\nkeep = ['))
    twice = '[town] rows is "copy", and 26 of 26 rows are the same in both databases'
    assert (done.code, twice in said(done)) == (0, True), done.out + done.err


def test_a_match_by_few_values_is_refused_in_one_line(two: Two, merging: Cli) -> None:
    log = "log (id INTEGER PRIMARY KEY, reason TEXT)"
    urls = two("sqlite", {log: lambda _: (f"{i}, 'reason {i % 3}'" for i in range(1, 41))})
    refused = merging(urls, ("[log]\n", '[log]\nmatch = ["reason"]\n'), ('rows = "?"', 'rows = "copy"'))
    several = "[log] match: rows of the second are each several of the first, such as those with id "
    assert refused.out.startswith(several), refused.out
    assert len(refused.out.splitlines()) == 2, refused.out


def test_a_tree_is_not_matched_by_ids_of_its_own(two: Two, merging: Cli) -> None:
    tree = "tree (id INTEGER PRIMARY KEY, parent INTEGER, name TEXT)"
    urls = two("sqlite", {tree: lambda s: [f"1, NULL, '{s}'", "2, 1, 'a'", f"3, 1, '{s} b'"]})
    drafted = 'id   = ["id"]\nkeep = ["parent", "name"]'
    rules = 'id   = ["id"]\nkeep = ["name"]\nof.parent = "tree"'
    refused = merging(urls, (drafted, f'match = ["parent", "name"]\n{rules}')).out
    assert "match of tree: by ids of matched rows not known yet: take other columns" in refused
    done = merging(urls, (drafted, f'match = ["name"]\n{rules}'), options=DRY)
    assert "stayed away: 1 rows of tree" in done.out, done.out + done.err


def test_ids_of_a_table_of_two_rows_are_never_called_ids_of_no_table(two: Two, merging: Cli) -> None:
    tables: Tables = {
        "alliance (id INTEGER PRIMARY KEY, name TEXT)": named(1, 2),
        "hero (id INTEGER PRIMARY KEY, name TEXT, alliance_id INTEGER)": lambda s: (
            f"{i}, '{s}{i}', {i % 3}" for i in range(1, 41)
        ),
    }
    urls = two("sqlite", tables)
    drafted, wrong = 'id   = ["id", "alliance_id"]\nkeep = ["name"]', 'id   = ["id"]\nkeep = ["name", "alliance_id"]'
    assert "look again" not in merging(urls, options=DRY).out
    kept = merging(urls, (drafted, wrong), options=DRY)
    assert "alliance_id is in keep, and ids of alliance.id: move it to id" in said(kept)


def test_a_key_of_first_characters_that_two_rows_would_have_is_said_by_the_database(two: Two, merging: Cli) -> None:
    rows = {"A": ["1, 'abc1'"], "B": ["1, 'abc2'", "2, 'xyz'"]}
    urls = two("mariadb", {"t (id INT PRIMARY KEY, n TEXT, UNIQUE KEY (n(3)))": rows.__getitem__})
    refused = merging(urls, code=ExitCode.MERGE_REFUSED)
    assert "nothing was changed; two rows would have one key" in " ".join(refused.err.split())
    execute(urls[1], "DELETE FROM t WHERE id = 1")
    merging(urls, code=0)
    assert rows_of(urls[0], "SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize("kind", KINDS)
def test_expressions_that_the_database_does_not_know_are_refused_all_at_once(two: Two, merging: Cli, kind: str) -> None:
    urls = two(kind, {"t (id INT PRIMARY KEY, a INT, b INT)": lambda s: ["1, 2, 3"] * (s == "B")})
    texts = 'sql.a = "aa + :offset"\nsql.b = "nothing(b)"'
    refused = merging(urls, ('"a", "b"', '"id"'), ('id   = ["id"]', ""), ('"id"]', f'"id"]\n{texts}'))
    assert refused.code == ExitCode.MERGE_REFUSED
    assert re.findall(r"^\[t\] (sql\.\w): ", refused.out, re.MULTILINE) == ["sql.a", "sql.b"], refused.out + refused.err
