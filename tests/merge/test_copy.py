"""`merge copy` and `merge check --copied` on real databases: no row is lost, and what is missing is named."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.cli.exit_codes import ExitCode
from snowredis.merge import MergeError, Undecided
from snowredis.merge.databases import open_database
from snowredis.merge.journal import Journal
from tests.merge import game
from tests.merge.test_apply import OF_GAME, apply_file, plan_of
from tests.support import warm
from tests.support.databases import DatabaseServer
from tests.support.statements import execute, rows_of
from tests.support.waiting import eventually

IMPORTED = ("duckdb", "sqlalchemy")
Cli = Callable[..., Any]
Two = Callable[..., tuple[str, str]]


def findings_of(kept: str, changed: str, path: Path, **options: Any) -> list[str]:
    with pytest.raises(Undecided) as refused:
        plan_of(kept, changed, path, **options)
    return refused.value.findings


def merge(offline: Cli, kept: str, changed: str, path: Path, **options: Any) -> None:
    """Merge by the procedure of the page; every step succeeds."""
    plan_of(kept, changed, path, **options)
    apply_file(path)
    for argv in (["copy", str(path), "--run", "--yes"], ["check", "--copied", str(path)]):
        done = offline("merge", *argv)
        assert (done.code, done.err.count("error")) == (ExitCode.OK, 0), done.out + done.err


def test_two_shards_of_a_game_are_copied_and_what_is_missing_later_is_named(
    database_kind: DatabaseServer, tmp_path: Path, offline: Cli
) -> None:
    kept, changed = database_kind.new_database(), database_kind.new_database()
    for url, shard in ((kept, "a"), (changed, "b")):
        game.fill(url, shard, 30, counters=True, seed=1)
    expected = {
        name: sorted(rows + (game.story(changed)[name] if name != game.SAME else []), key=repr)
        for name, rows in game.story(kept).items()
    }
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path, **OF_GAME)
    apply_file(path)
    assert offline("merge", "copy", str(path), "--run", "--yes").code == ExitCode.OK
    assert game.story(kept) == expected
    done = offline("merge", "check", "--copied", str(path))
    assert done.code == ExitCode.OK, done.out
    assert "rows of 9 tables" in done.out
    execute(
        kept,
        "DELETE FROM vip WHERE text = 'b vip 7'",
        "UPDATE item SET text = 'other' WHERE text = 'b item 5'",
        "DELETE FROM audit WHERE text = 'b audit 3'",
        "UPDATE kind SET name = 'no kind' WHERE id = 2",
        "DELETE FROM guild WHERE name = 'a guild 0'" if database_kind.name == "sqlite" else "SELECT 1",
    )
    done = offline("merge", "check", "--copied", str(path))
    assert done.code == ExitCode.FOUND_ERRORS
    for text in (
        "vip: the first database does not have 1 rows, such as ",
        "item: the first database has other values of 1 rows, such as ",
        "audit: the first database does not have 1 rows, such as ",
        "kind: the first database has neither its row nor one that matches 1 rows, such as 2",
    ):
        assert text in done.out
    assert ("foreign key player(guild)" in done.out or "guild: " in done.out) == (database_kind.name == "sqlite")


# --- rows that both have -----------------------------------------------------------------------------------

VOTES = """
CREATE TABLE account (id int PRIMARY KEY, username varchar(20) NOT NULL UNIQUE, email varchar(40) UNIQUE);
CREATE TABLE vote (id int PRIMARY KEY, account int NOT NULL, FOREIGN KEY (account) REFERENCES account (id))
"""


def test_a_second_unique_key_of_a_matched_table_is_found_before_the_first_change(
    two: Two, tmp_path: Path, offline: Cli
) -> None:
    rows = """INSERT INTO account VALUES (1, 'ann', 'a@x'), (2, 'bob', 'b@x'); INSERT INTO vote VALUES (1, 1)
--
INSERT INTO account VALUES (1, 'ann', 'other@x'), (2, 'carl', 'b@x'); INSERT INTO vote VALUES (1, 1), (2, 2)"""
    kept, changed = two("sqlite", VOTES, rows)
    options = {"matched": ["account=username"], "independent": ["account.id", "vote.id"]}
    assert findings_of(kept, changed, tmp_path / "p", **options) == [
        "account: 1 rows have the same email as one in the other, such as 'b@x': correct those rows in one of the "
        "databases; username says that they are not the same"
    ]
    execute(changed, "UPDATE account SET email = 'c@x' WHERE id = 2")
    path = tmp_path / "p"
    plan_of(kept, changed, path, **options)
    assert "is not applied" in offline("merge", "copy", str(path)).err
    apply_file(path)
    done = offline("merge", "check", "--copied", str(path))
    assert done.code == ExitCode.FOUND_ERRORS
    assert "vote: the first database does not have 2 rows, such as " in done.out
    assert offline("merge", "copy", str(path), "--run", "--yes").code == ExitCode.OK
    # a second copy ends at the first key that is there
    assert "Nothing was copied" in offline("merge", "copy", str(path), "--run", "--yes").err
    query = "SELECT username, email, v.id FROM vote v JOIN account a ON a.id = v.account ORDER BY 3"
    assert [row[:2] for row in rows_of(kept, query)] == [("ann", "a@x"), ("ann", "a@x"), ("carl", "c@x")]


@pytest.mark.parametrize("kind", ["mariadb", "postgresql", "sqlite"])
def test_the_server_decides_which_rows_are_the_same_and_near_ones_are_refused(
    two: Two, tmp_path: Path, offline: Cli, kind: str
) -> None:
    rows = """INSERT INTO account VALUES (1, 'Bob', NULL); INSERT INTO vote VALUES (1, 1)
--
INSERT INTO account VALUES (1, 'eve', NULL), (2, 'bob', NULL); INSERT INTO vote VALUES (1, 2), (2, 1)"""
    kept, changed = two(kind, VOTES, rows)
    options: dict[str, Any] = {"matched": ["account=username"], "independent": ["account.id", "vote.id"]}
    expected = [("Bob",), ("Bob",), ("eve",)]
    if kind != "mariadb":
        with pytest.raises(Exception, match=r"such as 'bob' and 'Bob'.*--independent account\.username"):
            plan_of(kept, changed, tmp_path / "p", **options)
        options["independent"] += ["account.username"]
        expected = [("Bob",), ("bob",), ("eve",)]
    merge(offline, kept, changed, tmp_path / "p", **options)
    assert rows_of(kept, "SELECT username FROM vote v JOIN account a ON a.id = v.account ORDER BY v.id") == expected
    assert rows_of(kept, "SELECT count(*) FROM account") == [(2 if kind == "mariadb" else 3,)]


def test_matched_tables_with_a_parent_and_pairs_that_both_have_are_copied(
    two: Two, tmp_path: Path, offline: Cli
) -> None:
    tables = """
CREATE TABLE color (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE);
CREATE TABLE shade (id int PRIMARY KEY, color int NOT NULL, name varchar(20) NOT NULL, UNIQUE (color, name),
    FOREIGN KEY (color) REFERENCES color (id));
CREATE TABLE mixed (one int NOT NULL, other int NOT NULL, PRIMARY KEY (one, other),
    FOREIGN KEY (one) REFERENCES shade (id), FOREIGN KEY (other) REFERENCES shade (id))
"""
    rows = """INSERT INTO color VALUES (1, 'red'), (2, 'blue');
INSERT INTO shade VALUES (1, 1, 'dark'), (2, 2, 'light');
INSERT INTO mixed VALUES (1, 2)
--
INSERT INTO color VALUES (1, 'blue'), (2, 'red'), (3, 'green');
INSERT INTO shade VALUES (1, 1, 'light'), (2, 2, 'dark'), (3, 3, 'dark'); INSERT INTO mixed VALUES (2, 1), (3, 3)"""
    kept, changed = two("mariadb", tables, rows)
    options: dict[str, Any] = {"matched": ["color=name", "shade=color,name"], "independent": ["color.id", "shade.id"]}
    assert findings_of(kept, changed, tmp_path / "p", **options) == [
        "mixed: 1 rows have the same one, other as one in the other, such as (1, 2): --match mixed=one,other or "
        "correct those rows in one of the databases"
    ]
    options["matched"].append("mixed=one,other")
    merge(offline, kept, changed, tmp_path / "p", **options)
    query = (
        "SELECT a.name, c.name FROM mixed m JOIN shade a ON a.id = one JOIN shade b ON b.id = other "
        "JOIN color c ON c.id = b.color"
    )
    assert sorted(rows_of(kept, query)) == [("dark", "blue"), ("dark", "green")]
    assert rows_of(kept, "SELECT count(*) FROM shade") == [(3,)]


# --- what a copy must not do -------------------------------------------------------------------------------


def test_sequences_never_go_back_and_one_that_no_column_uses_is_looked_at(
    two: Two, tmp_path: Path, offline: Cli
) -> None:
    tables = """CREATE SEQUENCE loose; CREATE SEQUENCE far; CREATE TABLE bill (id serial PRIMARY KEY, text text)"""
    rows = """SELECT setval('loose', 5000), setval('far', 7);
INSERT INTO bill (text) SELECT 'a' || n FROM generate_series(1, 4) n
--
SELECT setval('loose', 20), setval('far', 900); INSERT INTO bill (text) SELECT 'b' || n FROM generate_series(1, 9) n"""
    kept, changed = two("postgresql", tables, rows)
    path = tmp_path / "p"
    plan_of(kept, changed, path)
    apply_file(path)
    assert offline("merge", "copy", str(path), "--run", "--yes").code == ExitCode.OK
    done = offline("merge", "check", "--copied", str(path))
    assert (done.code, done.out.splitlines()[0]) == (
        ExitCode.FOUND_ERRORS,
        "the sequence far, which no column uses, gives 8 next, and 901 in the second database: SELECT "
        "setval('far', 900);",
    )
    assert rows_of(kept, "SELECT last_value FROM loose") == [(5000,)]
    (highest,) = rows_of(kept, "SELECT max(id) FROM bill")[0]
    execute(kept, "SELECT setval('far', 900)", "INSERT INTO bill (text) VALUES ('new')")
    assert rows_of(kept, "SELECT id FROM bill WHERE text = 'new'") == [(highest + 1,)]
    execute(kept, "SELECT setval('bill_id_seq', 3)")
    done = offline("merge", "check", "--copied", str(path))
    assert f"the counter bill_id_seq gives 4 next, and {highest + 1} is there: SELECT setval('bill_id_seq'" in done.out


PERSON = {
    "postgresql": "CREATE TABLE person (id int PRIMARY KEY, {}, up text GENERATED ALWAYS AS (upper(name)) STORED);"
    "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name = 'stamped'~ RETURN NEW~ END $$;"
    "CREATE TRIGGER stamp BEFORE INSERT ON person FOR EACH ROW EXECUTE FUNCTION stamp()",
    "sqlite": "CREATE TABLE person (id int PRIMARY KEY, {}, up text GENERATED ALWAYS AS (upper(name)) STORED);"
    "CREATE TRIGGER stamp AFTER INSERT ON person BEGIN UPDATE person SET name = 'stamped'~ END",
    "mariadb": "CREATE TABLE person (id int PRIMARY KEY, {}, up varchar(40) AS (upper(name)));"
    "CREATE TRIGGER stamp BEFORE INSERT ON person FOR EACH ROW SET NEW.name = 'stamped'",
}


@pytest.mark.parametrize("kind", PERSON)
def test_columns_go_by_name_and_no_trigger_runs(
    request: pytest.FixtureRequest, tmp_path: Path, offline: Cli, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    kept, changed = server.new_database(), server.new_database()
    orders = ("name varchar(40), email varchar(40)", "email varchar(40), name varchar(40)")
    for url, order, shard in zip((kept, changed), orders, "ab", strict=True):
        table, *others = [part.replace("~", ";") for part in PERSON[kind].format(order).split(";")]
        rows = f"INSERT INTO person (id, name, email) VALUES (1, '{shard}: \\it''s', '{shard}@x'), (2, 'ü\n', NULL)"
        execute(url, table, rows.replace("\\", "\\\\") if kind == "mariadb" else rows, *others)
    options: dict[str, Any] = {"independent": ["person.id"]}
    if kind == "mariadb":
        (text,) = findings_of(kept, changed, tmp_path / "p", **options)
        assert "in the first database, the trigger stamp of person would run at each INSERT: drop it" in text
        execute(kept, "DROP TRIGGER stamp")
    merge(offline, kept, changed, tmp_path / "p", **options)
    expected = [("a: \\it's", "a@x"), ("b: \\it's", "b@x"), ("ü\n", None), ("ü\n", None)]
    assert sorted(rows_of(kept, "SELECT name, email FROM person"), key=repr) == sorted(expected, key=repr)
    assert rows_of(kept, "SELECT count(*) FROM person WHERE up = upper(name)") == [(4,)]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_copy_that_fails_at_its_end_has_copied_nothing(two: Two, tmp_path: Path, offline: Cli, kind: str) -> None:
    tables = "CREATE TABLE a (id int PRIMARY KEY, t varchar(9)); CREATE TABLE z (id int PRIMARY KEY, t varchar(9))"
    rows = "INSERT INTO a VALUES (1, 'x'); INSERT INTO z VALUES (1, 'x')"
    kept, changed = two(kind, tables, f"{rows}\n--\n{rows.replace('x', 'y')}")
    path = tmp_path / "p"
    plan_of(kept, changed, path)
    apply_file(path)
    (new,) = rows_of(changed, "SELECT id FROM z")[0]
    execute(kept, f"INSERT INTO z VALUES ({new}, 'late')")
    done = offline("merge", "copy", str(path), "--run", "--yes")
    assert done.code == ExitCode.MERGE_REFUSED
    assert "uplicate" in done.err
    assert "Nothing was copied" in done.err
    assert rows_of(kept, "SELECT count(*) FROM a") == [(1,)]
    # MariaDB has another order than its foreign keys
    assert sa.make_url(kept).database != sa.make_url(changed).database


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_interrupted_copy_commits_nothing_afterwards(two: Two, tmp_path: Path, kind: str) -> None:
    kept, changed = two(kind, "CREATE TABLE a (id bigint PRIMARY KEY, t varchar(200))")
    numbers = "generate_series(1, 100000) g (seq)" if kind == "postgresql" else "seq_1_to_100000"
    execute(changed, f"INSERT INTO a SELECT seq, repeat('x', 200) FROM {numbers}")
    path = tmp_path / "p"
    plan_of(kept, changed, path)
    apply_file(path)
    command = [sys.executable, "-m", "snowredis", "merge", "copy", str(path), "--run", "--yes"]
    running = f"FROM pg_stat_activity WHERE query LIKE 'COPY a %%' AND datname = '{sa.make_url(kept).database}'"
    if kind == "mariadb":
        running = "FROM information_schema.processlist WHERE info LIKE 'INSERT %%' AND id <> connection_id()"

    def copies() -> bool:
        return rows_of(kept, f"SELECT count(*) {running}") != [(0,)]

    for number in (signal.SIGTERM, signal.SIGKILL):
        with sa.create_engine(kept).connect() as other:
            if kind == "postgresql":
                # a copy takes less than a look at it, and waits for this
                other.exec_driver_sql("LOCK TABLE a IN SHARE MODE")
            process = warm.Popen(
                command, imported=IMPORTED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            eventually(copies, "a copy", 60)
            process.send_signal(number)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == (ExitCode.INTERRUPTED if number == signal.SIGTERM else -number), said
        eventually(lambda: not copies(), "the end of the copy", 60)
        assert rows_of(kept, "SELECT count(*) FROM a") == [(0,)]
    assert warm.run(command, imported=IMPORTED, capture_output=True).returncode == ExitCode.OK
    assert rows_of(kept, "SELECT count(*) FROM a") == [(100_000,)]


# --- what a plan says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_references_are_proposed_by_exact_name_with_all_candidates_held_against_both_databases(
    two: Two, tmp_path: Path, kind: str
) -> None:
    tables = """
CREATE TABLE dashboard_slices (id int PRIMARY KEY, name varchar(20));
CREATE TABLE slices (id int PRIMARY KEY, name varchar(20));
CREATE TABLE report (id int PRIMARY KEY, slice_id int, name varchar(20));
CREATE TABLE few (n int PRIMARY KEY, name varchar(20));
CREATE TABLE child (id int PRIMARY KEY, few int, FOREIGN KEY (few) REFERENCES few (n))
"""
    rows = """INSERT INTO dashboard_slices VALUES (10, '{0} 1'), (20, '{0} 2');
INSERT INTO slices VALUES (30, '{0} 3'), (40, '{0} 4');
INSERT INTO report VALUES (50, 30, '{0} 5'), (60, 40, '{0} 6');
INSERT INTO few VALUES (1, '{0} 7'), (2, '{0} 8'), (3, '{0} 9');
INSERT INTO child VALUES (1, 1), (2, 2), (3, 3), (4, 3)"""
    kept, changed = two(kind, tables, f"{rows.format('a')}\n--\n{rows.format('b')}")
    assert findings_of(kept, changed, tmp_path / "p") == [
        "report.slice_id: 100% of its values are ids of slices: --reference report.slice_id=slices.id "
        "or --independent report.slice_id"
    ]
    execute(kept, "UPDATE report SET slice_id = 10 WHERE id = 50")
    execute(changed, "UPDATE report SET slice_id = 10 WHERE id = 50")
    (finding,) = findings_of(kept, changed, tmp_path / "p")
    assert finding.startswith(
        "report.slice_id: 50% of its values are ids of slices, dashboard_slices: --reference report.slice_id=slices"
    )


def test_equal_texts_of_a_primary_key_are_no_reason_to_take_rows_for_the_same(two: Two, tmp_path: Path) -> None:
    tables = """CREATE TABLE country (iso char(2) PRIMARY KEY, name text);
CREATE TABLE town (id int PRIMARY KEY, name text)"""
    rows = "INSERT INTO country VALUES ('de', 'x'); INSERT INTO town VALUES (1, '{0}')"
    kept, changed = two("postgresql", tables, f"{rows.format('a')}\n--\n{rows.format('b')}")
    assert findings_of(kept, changed, tmp_path / "p") == [
        "country: 1 rows have the same iso as one in the other, such as 'de': correct those rows in one of the "
        "databases, or give them other keys"
    ]
    execute(changed, "INSERT INTO country VALUES ('DE', 'y')")
    with pytest.raises(Exception, match=r"--match country: rows are nearly the same.*'DE' and 'de'"):
        plan_of(kept, changed, tmp_path / "p", matched=["country=iso"])
    execute(changed, "DELETE FROM country WHERE iso = 'DE'")
    plan_of(kept, changed, tmp_path / "p", matched=["country=iso"])


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_code_that_others_refer_to_stays_if_a_person_says_so(
    two: Two, tmp_path: Path, offline: Cli, kind: str
) -> None:
    tables = """
CREATE TABLE country (id int PRIMARY KEY, iso int NOT NULL UNIQUE, name varchar(20));
CREATE TABLE city (id int PRIMARY KEY, iso int, name varchar(20), FOREIGN KEY (iso) REFERENCES country (iso))
"""
    rows = """INSERT INTO country VALUES (1, 276, 'de'), (2, 40, 'at'); INSERT INTO city VALUES (1, 276, 'a1')
--
INSERT INTO country VALUES (1, 40, 'at'), (2, 276, 'de'), (3, 756, 'ch');
INSERT INTO city VALUES (1, 276, 'b1'), (2, 756, 'b2')"""
    kept, changed = two(kind, tables, rows)
    (finding,) = [text for text in findings_of(kept, changed, tmp_path / "p") if text.startswith("country.iso")]
    assert finding.endswith("--independent country.iso if they are codes that stay or --id country.iso for new numbers")
    options: dict[str, Any] = {"independent": ["country.iso", "country.id", "city.id"]}
    (finding,) = findings_of(kept, changed, tmp_path / "p", **options)
    assert "2 rows have the same iso as one in the other" in finding
    assert "--match country=iso" in finding
    merge(offline, kept, changed, tmp_path / "p", matched=["country=iso"], **options)
    assert rows_of(kept, "SELECT iso, name FROM country ORDER BY 1") == [(40, "at"), (276, "de"), (756, "ch")]
    assert rows_of(kept, "SELECT name, iso FROM city ORDER BY 1") == [("a1", 276), ("b1", 276), ("b2", 756)]


def test_tables_that_both_have_counters_in_keys_and_trees_are_named_together(
    two: Two, tmp_path: Path, offline: Cli
) -> None:
    tables = """
CREATE TABLE status (id serial PRIMARY KEY, name text NOT NULL);
CREATE TABLE ticket (id serial PRIMARY KEY, status int REFERENCES status, text text);
CREATE TABLE item (player int, id bigserial, text text, PRIMARY KEY (player, id));
CREATE TABLE keyless (id serial, name text);
CREATE TABLE node (id serial PRIMARY KEY, path varchar(40) UNIQUE, depth int, numchild int, name text);
CREATE TABLE branch (id serial PRIMARY KEY, tree_id int, lft int, rght int, name text);
CREATE TABLE shelf (id serial PRIMARY KEY, lft int, rgt int, name text);
INSERT INTO status (name) VALUES ('open'), ('closed')
"""
    rows = """INSERT INTO ticket (status, text) VALUES (2, '{0}'); INSERT INTO item (player, text) VALUES (1, '{0}');
INSERT INTO keyless (name) VALUES ('{0}'); INSERT INTO shelf (lft, rgt, name) VALUES (9001, 9002, '{0}');
INSERT INTO node (path, depth, numchild, name) VALUES ('000Z', 1, 1, '{0} root'), ('000Z0001', 2, 0, '{0} leaf');
INSERT INTO branch (tree_id, lft, rght, name) VALUES (1, 1, 4, '{0} root'), (1, 2, 3, '{0} leaf')"""
    kept, changed = two("postgresql", tables, f"{rows.format('a')}\n--\n{rows.format('b')}")
    of_trees = ["branch.lft", "branch.rght", "node.numchild", "node.depth", "item.player"]
    options: dict[str, Any] = {"independent": of_trees}
    findings, counted = findings_of(kept, changed, tmp_path / "p", **options), ["item.id", "keyless.id"]
    assert findings == [
        "branch.tree_id: 100% of its values are ids of branch, node, shelf, status, ticket: --reference "
        "branch.tree_id=TABLE.COLUMN or --independent branch.tree_id",
        *(f"{name} is counted, and no key by itself: --id {name} or --independent {name}" for name in counted),
        "branch: 1 values of tree_id are in both databases, as if their trees were one: --id branch.tree_id or "
        "--independent branch.tree_id",
        "node: 2 rows have the same path as one in the other, such as '000Z', '000Z0001': correct those "
        "rows in one of the databases, or match them if two such rows are one: the copy leaves out the second",
        "shelf: 1 values of lft are in both databases, as if their trees were one: number those of one database anew "
        "or --independent shelf.lft",
        "status: 2 of 2 rows are in both databases, and would be there twice: --match status=COLUMNS or "
        "--independent status.id",
    ]
    said = [f"--independent={column}" for column in of_trees]
    done = offline("merge", "plan", kept, changed, "--out", str(tmp_path / "p"), *said)
    assert (done.code, done.out.splitlines()) == (ExitCode.MERGE_REFUSED, findings)
    assert "7 findings, as above. Nothing was planned" in done.err
    execute(changed, "UPDATE node SET path = '0010' || substr(path, 5)")
    options |= {"ids": [*counted, "branch.tree_id"], "matched": ["status=name"]}
    options["independent"].append("shelf.lft")
    merge(offline, kept, changed, tmp_path / "p", **options)
    query = "SELECT s.name, t.text FROM ticket t JOIN status s ON s.id = status ORDER BY 2"
    assert rows_of(kept, query) == [("closed", "a"), ("closed", "b")]
    query = "SELECT b.name, r.name FROM branch b JOIN branch r USING (tree_id) WHERE b.lft = 2 AND r.lft = 1 ORDER BY 1"
    assert rows_of(kept, query) == [("a leaf", "a root"), ("b leaf", "b root")]
    for name in counted:
        assert rows_of(kept, f"SELECT count(DISTINCT id) FROM {name.removesuffix('.id')}") == [(2,)]


def test_missing_partitions_and_ids_inside_json_are_named_before_the_first_change(
    two: Two, tmp_path: Path, offline: Cli
) -> None:
    tables = """
CREATE TABLE pay (id int PRIMARY KEY, at date, data jsonb) PARTITION BY RANGE (id);
CREATE TABLE pay_low PARTITION OF pay FOR VALUES FROM (0) TO (100);
CREATE TABLE log (n serial, at date NOT NULL, text text, PRIMARY KEY (n, at)) PARTITION BY LIST (at);
CREATE TABLE log_1 PARTITION OF log FOR VALUES IN ('2026-01-01')
"""
    rows = """INSERT INTO pay VALUES (50, '2026-01-01', '{"pay": 50}'), (60, '2026-01-01', '{"no": 7}')
--
INSERT INTO pay VALUES (50, '2026-01-02', '{"pay": 60}'), (60, '2026-01-02', '{"no": 8}');
CREATE TABLE log_2 PARTITION OF log FOR VALUES IN ('2026-01-02');
INSERT INTO log (at, text) VALUES ('2026-01-02', 'b')"""
    kept, changed = two("postgresql", tables, rows)
    options = {"ids": ["log.n"], "independent": ["pay.id"]}
    findings = findings_of(kept, changed, tmp_path / "p", **options)
    first, second = (f"pay: rows have no partition in the {which} database" for which in ("first", "second"))
    assert [text.partition(",")[0] for text in findings] == [
        "pay.data.pay: 100% of its values are ids of pay",
        "log: rows have no partition in the first database",
        first,
        second,
    ]
    assert findings[0].endswith("rewrite them between apply and copy; then --independent pay.data")
    options["independent"].append("pay.data")
    assert findings[1].endswith(": make one, or CREATE TABLE log_rest PARTITION OF log DEFAULT;")
    for url in (kept, changed):
        execute(url, "CREATE TABLE pay_rest PARTITION OF pay DEFAULT")
    execute(kept, "CREATE TABLE log_2 PARTITION OF log FOR VALUES IN ('2026-01-02')")
    plan = plan_of(kept, changed, tmp_path / "first", **options)
    assert [text.partition(",")[0] for text in plan.notes] == ["pay.data.pay: 100% of its values are ids of pay"]
    merge(offline, kept, changed, tmp_path / "p", **options)
    assert rows_of(kept, "SELECT count(*) FROM pay") == [(4,)]


def test_a_type_of_a_row_itself_is_no_question_and_that_of_another_is_one(two: Two, tmp_path: Path) -> None:
    tables = """
CREATE TABLE django_content_type (id int PRIMARY KEY, app_label varchar(20), model varchar(20));
CREATE TABLE page (id int PRIMARY KEY, content_type_id int REFERENCES django_content_type (id), depth int, title text);
CREATE TABLE remark (id int PRIMARY KEY, content_type_id int REFERENCES django_content_type (id), target_pk int,
    t text);
INSERT INTO django_content_type VALUES (1, 'shop', 'page')
"""
    rows = "INSERT INTO page VALUES (5, 1, 1, '{0}'); INSERT INTO remark VALUES (6, 1, 5, '{0}')"
    kept, changed = two("sqlite", tables, f"{rows.format('a')}\n--\n{rows.format('b')}")
    findings = findings_of(kept, changed, tmp_path / "p", independent=["page.id", "remark.id", "page.depth"])
    assert findings == [
        "remark.target_pk: 100% of its values are ids of page: --reference remark.target_pk=TABLE.COLUMN or "
        "--independent remark.target_pk"
    ]


def test_abandoning_before_the_first_change_says_that_no_id_was_changed(
    two: Two, tmp_path: Path, offline: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "INSERT INTO account VALUES (1, '{0}', '{0}@x'); INSERT INTO vote VALUES (1, 1)"
    kept, changed = two("sqlite", VOTES, f"{rows.format('a')}\n--\n{rows.format('b')}")
    plan_of(kept, changed, tmp_path / "p", independent=["account.id", "vote.id"])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for name, begun in (("journal.Journal.add_moved", False), ("apply._Rewriter.rewrite", True)):
        with monkeypatch.context() as patch:
            patch.setattr(f"snowredis.merge.{name}", killed)
            with pytest.raises(KeyboardInterrupt):
                apply_file(tmp_path / "p")
        engine = open_database(changed)
        assert (Journal(engine).read() is not None) == begun
        engine.dispose()
    assert offline("merge", "abandon", changed, "--yes").out == "\nno id was changed\n"


ATTRIBUTES = """
CREATE TABLE attr (id int PRIMARY KEY); INSERT INTO attr VALUES (7), (8);
CREATE TABLE choice (id int PRIMARY KEY, label varchar(20));
CREATE TABLE facet (id int PRIMARY KEY, entity int, attribute int{}, value varchar(20), note varchar(20))
"""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
@pytest.mark.parametrize("is_id", [False, True])
def test_ids_in_the_rows_of_one_attribute_are_asked_about(two: Two, tmp_path: Path, kind: str, is_id: bool) -> None:
    kept, changed = two(kind, ATTRIBUTES.format(" REFERENCES attr (id)" if is_id else ""))
    for url, shard in ((kept, "x"), (changed, "y")):
        execute(url, *(f"INSERT INTO choice VALUES ({200 + n}, '{shard}{n}')" for n in range(20)))
        # attribute 7: a choice; 8: an amount, which may be like one; of the other columns, none tells ids from amounts
        rows = [(n, n // 4, 7 if n % 4 == 1 else 8, 200 + n // 4 if n % 4 == 1 else 190 + 7 * n) for n in range(80)]
        execute(url, *(f"INSERT INTO facet VALUES ({100_000 + n}, {e}, {a}, '{v}', 'note')" for n, e, a, v in rows))
    # a choice that was deleted: no row of the other database becomes it. If the attribute is an id, that of the other
    # database is another one, so all values count
    execute(kept, "INSERT INTO facet VALUES (200000, 50, 7, '309', 'note')")
    independent = ["facet.id", "facet.entity", "facet.attribute", "choice.id"]
    assert findings_of(kept, changed, tmp_path / "p", independent=independent) == [
        "facet.value where attribute is '7': 100% of its values are ids of choice: --reference "
        "'facet.value=TABLE.COLUMN WHERE attribute=7' or --independent facet.value"
    ]
    references = ["facet.value=choice.id WHERE attribute=7"]
    plan = plan_of(kept, changed, tmp_path / "p", independent=independent, references=references)
    apply_file(tmp_path / "p")
    offset = {domain.name: domain.offset for domain in plan.domains}["choice.id"]
    assert offset == 10_000 if is_id else 1_000
    query = "SELECT min(value), max(value) FROM facet GROUP BY attribute ORDER BY attribute"
    assert rows_of(changed, query) == [(str(offset + 200), str(offset + 219)), ("190", "743")]


KINDS = """
CREATE TABLE usr (id int PRIMARY KEY, name varchar(20));
CREATE TABLE thing (id int PRIMARY KEY, part varchar(20), ref int, is_owned boolean, owner int, place varchar(40),
    word varchar(40), price varchar(20), code char(12))
"""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_ids_are_found_in_rows_without_a_kind_and_of_a_flag_and_in_paths(two: Two, tmp_path: Path, kind: str) -> None:
    kept, changed = two(kind, KINDS)
    for url in (kept, changed):
        execute(url, *(f"INSERT INTO usr VALUES ({200 + n}, '{url[-9:]}{n}')" for n in range(40)))
        for n in range(80):
            # most parts refer to few users each, and are no reason to take those of the others for amounts
            part, ref = ("NULL", "'b'", "'c'", "'amount'")[n % 4], 90_000 + 7 * n if n % 4 == 3 else 200 + n // 10
            is_owned, owner = ("false", 80_000 + n) if n % 3 == 0 else ("true", 200 + n // 2)
            texts = f"'/{200 + n // 4}/{201 + n // 4}/', 'usr,{200 + n // 4}', '{200 + n // 4}.50', {200 + n // 4}"
            execute(url, f"INSERT INTO thing VALUES ({100_000 + n}, {part}, {ref}, {is_owned}, {owner}, {texts})")
    independent = ["thing.id", "usr.id"]
    found = findings_of(kept, changed, tmp_path / "p", independent=independent)
    assert [text.partition(": ")[0] for text in found] == [
        *("thing.place[*]", "thing.word (inside a text)"),
        *("thing.ref where part is ''", "thing.ref where part is 'b'", "thing.ref where part is 'c'"),
        f"thing.owner where is_owned is '{'true' if kind == 'postgresql' else 1}'",
        "thing.code",
    ]
    independent += ["thing.place", "thing.word", "thing.owner"]
    references = ["thing.ref=usr.id WHERE part=amount"]
    left = findings_of(kept, changed, tmp_path / "p", independent=independent, references=references)
    assert left[0].startswith("thing.ref where part is 'VALUE': 100% of its values are ids of usr: --reference ")
    references += ["thing.ref=usr.id"]
    with pytest.raises(MergeError, match=r"thing\.ref has one of all rows, too\. .* say WHERE part= in each"):
        plan_of(kept, changed, tmp_path / "p", independent=independent, references=references)
    independent += ["thing.ref"]
    references = ["thing.ref=usr.id WHERE part=", "thing.ref=usr.id WHERE part=b", "thing.code=usr.id"]
    plan = plan_of(kept, changed, tmp_path / "p", independent=independent, references=references)
    apply_file(tmp_path / "p")
    (offset,) = (domain.offset for domain in plan.domains if domain.name == "usr.id")
    least = rows_of(changed, "SELECT coalesce(part, ''), min(ref) FROM thing GROUP BY 1 ORDER BY 1")
    assert least == [("", 200 + offset), ("amount", 90_021), ("b", 200 + offset), ("c", 200)]
    assert rows_of(changed, "SELECT min(trim(code)) FROM thing") == [(str(200 + offset),)]


def test_a_column_is_asked_about_although_it_was_added_to_rows_that_were_there(
    database_kind: DatabaseServer, two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowredis.merge.undecided._ROWS", 5)
    kept, changed = two(database_kind.name, "CREATE TABLE hero (id int PRIMARY KEY, rival int NOT NULL)")
    for url, more in ((kept, 0), (changed, 3)):
        execute(url, *(f"INSERT INTO hero VALUES ({n}, {0 if n < 209 else n - 8 + more})" for n in range(201, 240)))
    (finding,) = findings_of(kept, changed, tmp_path / "p", independent=["hero.id"])
    assert finding.startswith("hero.rival: 100% of its values are ids of hero: --reference hero.rival=TABLE.COLUMN or ")
