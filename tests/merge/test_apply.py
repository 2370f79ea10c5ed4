"""Plans applied to real databases: every row refers to what it referred to, whatever killed the process on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from snowredis.merge.apply.copy_rows import copy_rows

from snowredis.merge import MergeError
from snowredis.merge.apply import Outcome, apply_plan, open_databases
from snowredis.merge.journal import Journal
from snowredis.merge.plan_file import Plan, PlanFile
from snowredis.merge.planning import Request, make_plan
from tests.merge import game
from tests.support.databases import DatabaseServer

# a child is forked from pytest, which has threads; it only runs what is here and then ends
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def plan_of(kept: str, changed: str, path: Path, **options: Any) -> Plan:
    return make_plan(Request(kept, changed, **options), path)


def apply_file(path: Path, *, copy: bool = False, batch_rows: int = 50) -> tuple[Outcome, int]:
    plan, file = PlanFile.open(path)
    with file:
        databases = open_databases(plan)
        outcome = apply_plan(plan, file, databases, batch_rows=batch_rows)
        return outcome, copy_rows(plan, databases, batch_rows=batch_rows) if copy else 0


def dies_at(statement: int, work: Callable[[], object]) -> bool:
    """Run *work* in a child that is killed with -9 before its n-th change; return false if it ended before that."""
    pid = os.fork()
    if not pid:
        left = statement

        def executed(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
            nonlocal left
            left -= text.startswith(("INSERT", "UPDATE", "ALTER"))
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sa.event.listen(sa.Engine, "before_cursor_execute", executed)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_a_merge_that_is_killed_again_and_again_ends_as_if_it_was_not(
    database_kind: DatabaseServer, tmp_path: Path
) -> None:
    kept, changed = database_kind.new_database(), database_kind.new_database()
    counters = database_kind.name == "mariadb"
    for url, shard in ((kept, "a"), (changed, "b")):
        game.fill(url, shard, 25, counters=counters, seed=1)
    before, others = game.story(changed), game.story(kept)
    path = tmp_path / "merge.plan"
    options: dict[str, Any] = {"references": [game.BY_HAND], "ids": [game.PART_OF_KEY], "shared": [game.SAME]}
    plan = plan_of(kept, changed, path, layout=None if counters else "default", **options)
    assert {domain.name: domain.kind for domain in plan.domains} == {
        "guild.id": "counter" if counters else "layout",
        "item.id": "counter" if counters else "layout",
        "kind.id": "shared",
        "player.id": "counter" if counters else "layout",
        "quest.id": "counter",
    }
    assert (plan.conflicts, plan.warnings) == ([], [])
    as_planned = game.contents(changed)

    # in the check, the map, the batches, the verification and the copy
    kills = [dies_at(statement, lambda: apply_file(path, copy=True)) for statement in (2, 9, 23, 41)]
    assert kills == [True] * len(kills)
    outcome, copied = apply_file(path, copy=True)
    assert outcome.resumed
    assert (
        outcome.ids
        == plan.renamed
        == sum(domain.clashes for domain in plan.domains if domain.kind != "shared")
    )
    assert outcome.values == sum(table.rewritten for table in plan.tables)
    assert game.story(changed) == before
    assert game.contents(changed) != as_planned
    merged = game.story(kept)
    for table, rows in merged.items():
        expected = others[table] if table == game.SAME else sorted(others[table] + before[table], key=repr)
        assert rows == expected, table
    assert copied == sum(len(rows) for name, rows in before.items() if name != game.SAME)

    # again: nothing is left to do; and a process that was slower finds that another one went on
    assert apply_file(path, copy=True) == (outcome, copied)
    journal = Journal(open_databases(plan).changed, plan)
    run = journal.read()
    assert run is not None
    engine = sa.create_engine(changed)
    with engine.begin() as connection:
        journal.advance(connection, run)
        with pytest.raises(MergeError, match="another process is at work"):
            journal.advance(connection, run)
    with engine.connect() as connection:
        old, new = connection.execute(
            sa.text(
                "SELECT old, new FROM snowredis_merge_map JOIN snowredis_merge_columns USING (run, domain) "
                "WHERE column_name = 'player.id' ORDER BY old"
            )
        ).first() or (0, 0)
    assert old in {row[0] for row in as_planned["player"]}
    assert new in {row[0] for row in game.contents(changed)["player"]}


# --- what only one kind of database has ----------------------------------------------------------------


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Callable[[str, str], tuple[str, str]]:
    """Make two databases from the same statements, which are separated by lines of `--`."""

    def make(kind: str, statements: str) -> tuple[str, str]:
        server: DatabaseServer = request.getfixturevalue(f"{kind}_server")
        urls = server.new_database(), server.new_database()
        for url in urls:
            engine = sa.create_engine(url)
            with engine.begin() as connection:
                for statement in statements.split("\n--\n"):
                    connection.exec_driver_sql(statement)
            engine.dispose()
        return urls

    return make


def rows_of(url: str, query: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(query))]
    engine.dispose()
    return rows


POSTGRESQL = """
CREATE SCHEMA other
--
CREATE TABLE parent (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, touched interval,
    data jsonb, tags text[], up text GENERATED ALWAYS AS (upper(name)) STORED)
--
CREATE TABLE other.child (id serial PRIMARY KEY, "a:b ""c%s" int,
    parent integer NOT NULL REFERENCES parent ON UPDATE RESTRICT)
--
CREATE TABLE measured (id bigint, day date, parent integer REFERENCES parent ON UPDATE SET NULL, PRIMARY KEY (id, day))
    PARTITION BY RANGE (day)
--
CREATE TABLE measured_26 PARTITION OF measured FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')
--
CREATE INDEX ON other.child (parent)
--
CREATE INDEX ON measured (parent)
--
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name = 'touched'; RETURN NEW; END $$
--
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON parent FOR EACH ROW EXECUTE FUNCTION touch()
--
ALTER TABLE parent DISABLE TRIGGER touch
--
INSERT INTO parent (name, touched, data, tags)
    VALUES ('one', '1 month 3 days', '{"a": [1]}', '{x,y}'), (NULL, NULL, NULL, NULL)
--
ALTER TABLE parent ENABLE ALWAYS TRIGGER touch
--
INSERT INTO other.child (parent) VALUES (1), (1), (2)
--
INSERT INTO measured VALUES (7, '2026-05-05', 1), (7, '2026-05-06', 2)
"""


def test_postgresql_has_its_triggers_constraints_and_generated_keys_as_before(
    two: Callable[[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    kept, changed = two("postgresql", POSTGRESQL)
    catalog = (
        "SELECT conname, condeferrable, condeferred FROM pg_constraint UNION ALL "
        "SELECT tgname, tgenabled = 'A', NULL FROM pg_trigger WHERE NOT tgisinternal UNION ALL "
        "SELECT attname, attidentity = 'a', NULL FROM pg_attribute WHERE attidentity <> '' ORDER BY 1, 2"
    )
    state = rows_of(changed, catalog)
    path = tmp_path / "merge.plan"
    plan = plan_of(kept, changed, path, ids=["measured.id"])
    assert {domain.name: domain.offset for domain in plan.domains} == {
        "measured.id": 10,
        "other.child.id": 10,
        "parent.id": 10,
    }
    outcome, copied = apply_file(path, copy=True)
    assert (outcome.ids, copied) == (2 + 3 + 1, 2 + 3 + 2)
    parents = "SELECT id, name, touched::text, data::text, tags::text, up FROM parent ORDER BY id"
    one = ("one", "1 mon 3 days", '{"a": [1]}', "{x,y}", "ONE")
    assert rows_of(changed, parents) == [(11, *one), (12, None, None, None, None, None)]
    assert [row[0] for row in rows_of(kept, parents)] == [1, 2, 11, 12]
    assert rows_of(kept, parents)[2] == (11, *one)
    assert rows_of(kept, "SELECT parent FROM other.child ORDER BY id") == [
        (1,),
        (1,),
        (2,),
        (11,),
        (11,),
        (12,),
    ]
    assert rows_of(kept, "SELECT id, parent FROM measured_26 ORDER BY 1, 2") == [
        (7, 1),
        (7, 2),
        (17, 11),
        (17, 12),
    ]
    # as they were, and the counters go on above
    for url in (kept, changed):
        found = [row for row in rows_of(url, catalog) if not row[0].startswith("snowredis_merge_")]
        assert found == [row for row in state if not row[0].startswith("snowredis_merge_")]
    engine = sa.create_engine(kept)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("INSERT INTO parent DEFAULT VALUES RETURNING id")) > 12
        assert connection.scalar(sa.text("INSERT INTO other.child (parent) VALUES (1) RETURNING id")) > 13
    engine.dispose()


MARIADB = """
CREATE TABLE parent (id smallint unsigned AUTO_INCREMENT PRIMARY KEY, name varchar(20), `a:b%s` int,
    changed_at timestamp NOT NULL DEFAULT '2026-01-01 00:00:00' ON UPDATE CURRENT_TIMESTAMP)
--
CREATE TABLE child (id bigint AUTO_INCREMENT PRIMARY KEY, parent smallint unsigned,
    FOREIGN KEY (parent) REFERENCES parent (id) ON UPDATE CASCADE)
--
INSERT INTO parent (name) VALUES ('one'), ('two')
--
INSERT INTO child (parent) VALUES (1), (2), (NULL)
"""


def test_mariadb_keeps_its_timestamps_and_refuses_what_has_no_transactions(
    two: Callable[[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    kept, changed = two("mariadb", MARIADB)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path)
    engine = sa.create_engine(changed)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER late BEFORE UPDATE ON parent FOR EACH ROW SET NEW.name = 'late'"
        )
    with pytest.raises(MergeError, match=r"1 triggers run at changes .* late on parent.*Nothing was changed"):
        apply_file(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER late")
    assert apply_file(path, copy=True)[1] == 5
    found = rows_of(kept, "SELECT id, name, CAST(changed_at AS char) FROM parent ORDER BY id")
    assert [(row[0], row[1]) for row in found] == [(1, "one"), (2, "two"), (11, "one"), (12, "two")]
    assert {row[2] for row in found} == {"2026-01-01 00:00:00"}
    assert rows_of(kept, "SELECT parent FROM child ORDER BY id") == [
        (1,),
        (2,),
        (None,),
        (11,),
        (12,),
        (None,),
    ]
    with engine.begin() as connection:
        # the counter of the table whose ids changed goes on above them
        assert connection.execute(sa.text("INSERT INTO parent (name) VALUES ('new')")).lastrowid == 13
        connection.exec_driver_sql("CREATE TABLE plain (id int PRIMARY KEY) ENGINE=MyISAM")
    engine.dispose()
    with pytest.raises(MergeError, match="plain is of the engine MyISAM, which has no transactions"):
        plan_of(kept, changed, tmp_path / "other.plan")


SQLITE = """
CREATE TABLE parent (id INTEGER PRIMARY KEY AUTOINCREMENT, "na:me" TEXT, "%s" DATETIME)
--
CREATE TABLE child (parent INTEGER NOT NULL REFERENCES parent ON UPDATE SET NULL, n INTEGER, UNIQUE (parent, n))
--
CREATE TRIGGER touch AFTER UPDATE ON parent BEGIN UPDATE parent SET "na:me" = 'touched'; END
--
INSERT INTO parent ("na:me", "%s") VALUES ('one', 'not a date'), ('two', 5)
--
INSERT INTO child VALUES (1, 1), (1, 2), (2, 1)
"""


def test_sqlite_keeps_triggers_and_values_of_any_type(
    two: Callable[[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    kept, changed = two("sqlite", SQLITE)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path)
    assert apply_file(path, copy=True)[1] == 5
    assert rows_of(kept, "SELECT * FROM parent ORDER BY id") == [
        (1, "one", "not a date"),
        (2, "two", 5),
        (11, "one", "not a date"),
        (12, "two", 5),
    ]
    assert rows_of(kept, "SELECT * FROM child ORDER BY 1, 2")[3:] == [(11, 1), (11, 2), (12, 1)]
    for url in (kept, changed):
        assert [
            name for (name,) in rows_of(url, "SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ] == ["touch"]
    assert rows_of(kept, "SELECT seq FROM sqlite_sequence") == [(12,)]


# --- refusals --------------------------------------------------------------------------------------------


@pytest.fixture
def small(two: Callable[[str, str], tuple[str, str]], tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    kept, changed = two("sqlite", SQLITE)
    yield kept, changed, tmp_path / "merge.plan"
    assert not list(tmp_path.glob("*.part"))


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "INSERT INTO child VALUES (99, 1)",
            "rows of child whose parent leads to no row of parent, such as 99",
        ),
        (f"UPDATE parent SET id = {1 << 60} WHERE id = 2", "--layout"),
        (f"UPDATE parent SET id = {1 << 60} WHERE id = 2", "--counter parent.id"),
    ],
)
def test_databases_that_cannot_be_merged_are_refused(
    small: tuple[str, str, Path], statement: str, message: str
) -> None:
    kept, changed, path = small
    for url in (kept, changed):
        execute(
            url, "DROP TRIGGER touch", "UPDATE child SET parent = 1 WHERE parent = 2 AND n > 1", statement
        )
    if "60" in message or "layout" in message or "counter" in message:
        for url in (kept, changed):
            execute(url, f"UPDATE child SET parent = {1 << 60} WHERE parent = 2")
    with pytest.raises(MergeError, match="Nothing was planned") as refused:
        plan_of(kept, changed, path)
    assert message in str(refused.value)
    assert not path.exists()


def test_a_plan_is_refused_when_the_databases_have_changed(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path)
    with pytest.raises(MergeError, match="already exists"):
        plan_of(kept, changed, path)
    execute(kept, "INSERT INTO parent (id) VALUES (12)")
    with pytest.raises(MergeError, match="12 is a new id of the plan, and is in use"):
        apply_file(path)
    execute(kept, "DELETE FROM parent WHERE id = 12")
    execute(changed, "INSERT INTO child VALUES (1, 7)")
    with pytest.raises(MergeError, match="child has 4 rows, and had 3 when the plan was made"):
        apply_file(path)
    execute(changed, "DELETE FROM child WHERE n = 7", "ALTER TABLE child ADD COLUMN other REFERENCES parent")
    with pytest.raises(MergeError, match=r"is not as it was|child\.other came or went"):
        apply_file(path)
    assert rows_of(changed, "SELECT name FROM sqlite_master WHERE name LIKE 'snowredis%'") == []


def test_rows_that_both_databases_have_are_not_copied(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    for url in (kept, changed):
        execute(url, "CREATE TABLE mail (id INTEGER PRIMARY KEY, address TEXT UNIQUE)")
        execute(url, "INSERT INTO mail VALUES (1, 'a@example.org'), (2, 'b@example.org')")
    execute(changed, "UPDATE mail SET address = 'c@example.org' WHERE id = 2")
    plan = plan_of(kept, changed, path)
    (conflict,) = plan.conflicts
    assert conflict.table == "mail"
    assert conflict.text.startswith("1 rows have the same address in both databases, such as 'a@example.org'")
    # of a table that is said to be the same in both, the rows that differ are named
    same = plan_of(kept, changed, path.with_name("same.plan"), shared=["mail"])
    (conflict,) = same.conflicts
    assert (
        conflict.text
        == "1 rows have the same id in both databases, such as 2; and they differ: make them equal"
    )
    with pytest.raises(MergeError, match=r"1 obstacles to a copy: mail: 1 rows .* No row was copied"):
        apply_file(path, copy=True)


def test_a_plan_that_is_not_finished_is_finished_before_another_begins(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path)
    other = path.with_name("other.plan")
    plan_of(kept, changed, other)
    assert dies_at(9, lambda: apply_file(path, batch_rows=1))
    with pytest.raises(
        MergeError, match=r"is not finished \(rewriting\). Nothing was changed; finish it first"
    ):
        plan_of(kept, changed, path.with_name("third.plan"))
    with pytest.raises(MergeError, match="is not finished"):
        apply_file(other)
    assert apply_file(path, copy=True)[1] == 5
    # all is merged: what is left of the other plan does not fit any more
    with pytest.raises(MergeError, match="make a new plan"):
        apply_file(other)
    with pytest.raises(MergeError, match="both URLs lead to"):
        open_databases(PlanFile.open(path)[0], changed, changed)


def test_a_write_between_the_batches_is_found(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path)
    plan, file = PlanFile.open(path)

    def meddle(text: str, _done: int) -> None:
        if text == "adding up the rows after the change":
            execute(changed, "DROP TRIGGER touch", """UPDATE parent SET "na:me" = 'other' WHERE id = 11""")

    with file, pytest.raises(MergeError, match="parent has other values than before, besides its ids"):
        apply_plan(plan, file, open_databases(plan), batch_rows=10, report=meddle)


def test_files_that_are_no_plan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MergeError, match="there is no plan"):
        PlanFile.open(tmp_path / "none")
    (tmp_path / "text").write_text("not a plan")
    with pytest.raises(MergeError, match="is not a plan of this version"):
        PlanFile.open(tmp_path / "text")
