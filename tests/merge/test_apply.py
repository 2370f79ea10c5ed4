"""Plans applied to real databases, and taken back: rows refer to what they referred to, whatever killed the process."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.merge import MergeError, Undecided
from snowredis.merge.apply import apply_plan, open_databases, revert
from snowredis.merge.databases import LOCK_WAIT_S, open_database
from snowredis.merge.journal import Journal, Run
from snowredis.merge.pair import Request
from snowredis.merge.plan_file import Plan, open_plan
from snowredis.merge.planning import make_plan
from snowredis.merge.progress import Progress
from tests.merge import game
from tests.support.databases import DatabaseServer
from tests.support.statements import execute, rows_of

# a child is forked from pytest, which has threads; it only runs what is here and then ends
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
Two = Callable[..., tuple[str, str]]
OF_GAME: dict[str, Any] = {
    "references": game.BY_HAND,
    "ids": [game.PART_OF_KEY],
    "matched": [f"{game.SAME}=name"],
    "independent": game.INDEPENDENT,
}


def plan_of(kept: str, changed: str, path: Path, **options: Any) -> Plan:
    return make_plan(Request(kept, changed, **options), path, Progress())


def printed(kept: str, changed: str, path: Path, **options: Any) -> list[str]:
    """Return the references that a plan prints, to be pasted."""
    with pytest.raises(Undecided) as refused:
        plan_of(kept, changed, path, **options)
    return [shlex.split(text.partition("--reference ")[2])[0] for text in refused.value.findings]


def apply_file(path: Path, *, batch_rows: int = 50, progress: Progress | None = None) -> Run:
    with open_plan(path) as (plan, pairs):
        return apply_plan(plan, pairs, open_databases(plan), batch_rows=batch_rows, progress=progress or Progress())


def dies_at(statement: int, work: Callable[[], object]) -> bool:
    """Run *work* in a child that is killed with -9 before its n-th change of the journal; false if it ended before."""
    pid = os.fork()
    if not pid:
        left = statement

        def executed(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
            nonlocal left
            left -= text.startswith(("INSERT INTO snowredis", "UPDATE snowredis", "DELETE FROM snowredis"))
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
    database_kind: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowredis.merge.apply._FIRST", 20)
    kept, changed = database_kind.new_database(), database_kind.new_database()
    counters = database_kind.name == "mariadb"
    for url, shard in ((kept, "a"), (changed, "b")):
        game.fill(url, shard, 25, counters=counters, seed=1)
    before = game.story(changed)
    path = tmp_path / "merge.plan"
    plan = plan_of(kept, changed, path, layout=None if counters else "default", **OF_GAME)
    assert {domain.name: domain.kind for domain in plan.domains} == {
        "guild.id": "counter" if counters else "layout",
        "item.id": "counter" if counters else "layout",
        "kind.id": "match",
        "player.id": "counter" if counters else "layout",
        "quest.id": "counter",
    }
    assert plan.notes == []
    as_planned, of_kept = game.contents(changed), game.contents(kept)

    # in the map, the batches and the verification
    kills = [dies_at(statement, lambda: apply_file(path)) for statement in (2, 9)]
    assert kills == [True] * len(kills)
    outcome = apply_file(path)
    assert outcome.ids == sum(domain.renamed for domain in plan.domains)
    assert game.story(changed) == before
    new = game.contents(changed)
    assert new != as_planned
    for name, rows in new.items():
        keys = [column.name for column in game.METADATA.tables[name].primary_key]
        if keys == ["id"] and name != game.SAME:
            assert not {row[0] for row in rows} & {row[0] for row in of_kept[name]}
    assert game.contents(kept) == of_kept
    query = (
        "SELECT old, new FROM snowredis_merge_map JOIN snowredis_merge_columns USING (run, domain) "
        "WHERE column_name = 'player.id' ORDER BY old"
    )
    old, an_id = rows_of(changed, query)[0]
    assert old in {row[0] for row in as_planned["player"]}
    assert an_id in {row[0] for row in new["player"]}

    # again: nothing is left to do; and back, with kills
    assert apply_file(path) == outcome
    assert dies_at(6, lambda: revert(changed, finished=True, batch_rows=50, progress=Progress()))
    revert(changed, finished=True, batch_rows=50, progress=Progress())
    assert game.contents(changed) == as_planned
    assert rows_of(changed, "SELECT count(*) FROM snowredis_merge_map") == [(0,)]

    # what was taken back can be applied again, and be abandoned when half of it is done
    assert dies_at(17, lambda: apply_file(path))
    with pytest.raises(MergeError, match="is not finished: take it back with `snowredis merge abandon`"):
        revert(changed, finished=True, batch_rows=50, progress=Progress())
    with pytest.raises(MergeError, match=r"is not finished \(rewriting\).*`snowredis merge abandon`"):
        plan_of(kept, changed, tmp_path / "other.plan", **OF_GAME)
    assert dies_at(3, lambda: revert(changed, finished=False, batch_rows=50, progress=Progress()))
    with pytest.raises(MergeError, match=r"is not finished \(undoing\)"):
        apply_file(path)
    revert(changed, finished=False, batch_rows=50, progress=Progress())
    assert game.contents(changed) == as_planned


def test_numbers_of_counters_are_the_same_whether_they_change_in_one_transaction_or_in_many(
    database_kind: DatabaseServer, tmp_path: Path
) -> None:
    kept, *both = (database_kind.new_database() for _ in range(3))
    for url, shard in ((kept, "a"), *((url, "b") for url in both)):
        game.fill(url, shard, 15, counters=True, seed=1)
    before, versions = game.contents(both[0]), list[int]()
    for url, batch_rows in zip(both, (10, 10_000), strict=True):
        path = tmp_path / f"{batch_rows}.plan"
        plan_of(kept, url, path, **OF_GAME)
        apply = functools.partial(apply_file, path, batch_rows=batch_rows)
        # in the first transaction that changes ids, after the change
        assert dies_at(8, apply)
        assert game.contents(url) == before
        versions.append(apply().version)
    assert game.contents(both[0]) == game.contents(both[1]) != before
    assert versions[1] < versions[0]
    revert(both[1], finished=True, batch_rows=10_000, progress=Progress())
    assert game.contents(both[1]) == before


def test_two_processes_never_work_at_once(
    database_kind: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, changed = database_kind.new_database(), database_kind.new_database()
    for url, shard in ((kept, "a"), (changed, "b")):
        game.fill(url, shard, 15, counters=True, seed=1)
    before, path = game.story(changed), tmp_path / "merge.plan"
    plan = plan_of(kept, changed, path, **OF_GAME)
    outcomes: list[object] = []

    def apply() -> None:
        try:
            outcomes.append(apply_file(path, batch_rows=10))
        except MergeError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=apply) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    refused = [str(outcome) for outcome in outcomes if isinstance(outcome, MergeError)]
    assert done or database_kind.name == "sqlite"
    assert all("another process" in text for text in refused), refused
    apply_file(path)
    assert game.story(changed) == before
    # only one begins the next run of two processes that find the same run, or none
    engine = open_database(changed)
    journal = Journal(engine)
    first = journal.read()
    assert first is not None

    def begin(last: Run | None) -> Run:
        run = journal.new_run(plan, last)
        with engine.begin() as connection:
            journal.begin(connection, run, last)
        return run

    second = begin(first)
    for found in (None, first):
        with pytest.raises(MergeError, match="another process works on a merge"):
            begin(found)
    with engine.begin() as connection:
        journal.advance(connection, second, state="done")
        # a process that was slower finds that another one went on
        with pytest.raises(MergeError, match="another process works on a merge"):
            journal.advance(connection, second)
    # nor does one begin if the other one has finished since then
    for found in (None, first, second):
        with pytest.raises(MergeError, match="another process works on a merge"):
            begin(found)
    assert begin(journal.read()).number == second.number + 1
    engine.dispose()
    assert LOCK_WAIT_S < 60


POSTGRESQL = """
CREATE TABLE parent (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, touched interval, data jsonb,
    tags text[],
    up text GENERATED ALWAYS AS (upper(name)) STORED, CHECK (id > 0))
--
CREATE SCHEMA other
--
CREATE TABLE other.child (id serial PRIMARY KEY, parent int REFERENCES public.parent NOT NULL, n int)
--
CREATE TABLE other.late (parent int REFERENCES public.parent ON UPDATE SET NULL DEFERRABLE, again int)
--
CREATE TABLE measured (id int, at date, parent int REFERENCES parent, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)
--
CREATE TABLE measured_26 PARTITION OF measured FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')
--
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name = 'touched'; RETURN NEW; END $$
--
CREATE TRIGGER touch BEFORE UPDATE ON parent FOR EACH ROW EXECUTE FUNCTION touch()
--
INSERT INTO parent (name, touched, data, tags) VALUES ('one', '1 mon 3 days', '{"a": [1]}', '{x,y}'),
    (NULL, NULL, NULL, NULL)
--
ALTER TABLE parent ENABLE ALWAYS TRIGGER touch
--
INSERT INTO other.child (parent) VALUES (1), (1), (2)
--
INSERT INTO other.late VALUES (1), (2)
--
INSERT INTO measured VALUES (7, '2026-05-05', 1), (7, '2026-05-06', 2)
"""


def test_postgresql_has_its_triggers_constraints_and_generated_keys_as_before(two: Two, tmp_path: Path) -> None:
    kept, changed = two("postgresql", POSTGRESQL)
    catalog = (
        "SELECT conname, condeferrable, condeferred FROM pg_constraint UNION ALL "
        "SELECT tgname, tgenabled = 'A', NULL FROM pg_trigger WHERE NOT tgisinternal UNION ALL "
        "SELECT attname, attidentity = 'a', NULL FROM pg_attribute WHERE attidentity <> '' ORDER BY 1, 2"
    )
    state = rows_of(changed, catalog)
    path = tmp_path / "merge.plan"
    plan = plan_of(kept, changed, path, ids=["measured.id"], independent=["measured.id", "parent.id", "parent.data"])
    assert {domain.name: domain.offset for domain in plan.domains} == {
        "measured.id": 10,
        "other.child.id": 10,
        "parent.id": 10,
    }
    assert apply_file(path).ids == 2 + 3 + 1
    parents = "SELECT id, name, touched::text, data::text, tags::text, up FROM parent ORDER BY id"
    one = ("one", "1 mon 3 days", '{"a": [1]}', "{x,y}", "ONE")
    assert rows_of(changed, parents) == [(11, *one), (12, None, None, None, None, None)]
    assert rows_of(changed, "SELECT parent FROM other.child ORDER BY id") == [(11,), (11,), (12,)]
    # ON UPDATE SET NULL did nothing
    assert rows_of(changed, "SELECT parent FROM other.late ORDER BY 1") == [(11,), (12,)]
    assert rows_of(changed, "SELECT id, parent FROM measured_26 ORDER BY 1, 2") == [(17, 11), (17, 12)]
    found = [row for row in rows_of(changed, catalog) if not row[0].startswith("snowredis_merge_")]
    assert found == [row for row in state if not row[0].startswith("snowredis_merge_")]
    # the counters go on above
    engine = sa.create_engine(changed)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("INSERT INTO parent DEFAULT VALUES RETURNING id")) == 13
        assert connection.scalar(sa.text("INSERT INTO other.child (parent) VALUES (13) RETURNING id")) == 14
    engine.dispose()
    revert(changed, finished=True, batch_rows=1, progress=Progress())
    assert [row[0] for row in rows_of(changed, parents)] == [1, 2, 13]
    assert rows_of(changed, "SELECT parent FROM other.late ORDER BY 1") == [(1,), (2,)]


@pytest.mark.parametrize("circle", ["", "--\nUPDATE a SET b = id"])
@pytest.mark.parametrize("action", ["SET NULL", "CASCADE", "RESTRICT"])
def test_what_a_foreign_key_does_at_an_update_finds_nothing_to_do(
    two: Two, tmp_path: Path, action: str, circle: str
) -> None:
    to_b = f"int REFERENCES b ON UPDATE {action}"
    statements = (
        f"CREATE TABLE a (id int PRIMARY KEY, b int)\n--\nCREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a "
        f"ON UPDATE {action})\n--\nCREATE TABLE c (b {to_b})\n--\nINSERT INTO a VALUES (1), (2)\n--\n"
        "INSERT INTO b VALUES (1, 1), (2, 2)\n--\nINSERT INTO c VALUES (1), (2), (NULL)\n"
    )
    if circle:
        statements += f"--\nALTER TABLE a DROP b, ADD b {to_b}\n{circle}"
    kept, changed = two("postgresql", statements)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path, independent=["a.id", "b.id"])
    apply_file(path)
    assert rows_of(changed, "SELECT id, b FROM a ORDER BY 1") == [(n, n if circle else None) for n in (11, 12)]
    assert rows_of(changed, "SELECT id, a FROM b ORDER BY 1") == [(11, 11), (12, 12)]
    assert rows_of(changed, "SELECT b FROM c ORDER BY 1") == [(11,), (12,), (None,)]


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


def test_mariadb_keeps_its_timestamps_and_refuses_what_has_no_transactions(two: Two, tmp_path: Path) -> None:
    kept, changed = two("mariadb", MARIADB)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path, independent=["parent.id"])
    execute(changed, "CREATE TRIGGER late BEFORE UPDATE ON parent FOR EACH ROW SET NEW.name = 'late'")
    refused = r"the trigger late of parent would run at each UPDATE.*Nothing was changed"
    with pytest.raises(MergeError, match=refused):
        apply_file(path)
    with pytest.raises(MergeError, match=refused):
        plan_of(kept, changed, tmp_path / "other.plan", independent=["parent.id"])
    harmless = tmp_path / "harmless.plan"
    plan_of(kept, changed, harmless, independent=["parent.id"], with_triggers=True)
    with pytest.raises(MergeError, match=r"parent has other values than before.*`snowredis merge abandon`"):
        apply_file(harmless)
    execute(changed, "DROP TRIGGER late")
    with pytest.raises(MergeError, match=r"parent has other values.*All ids have their old values"):
        revert(changed, finished=False, batch_rows=50, progress=Progress())
    assert rows_of(changed, "SELECT id FROM parent ORDER BY id") == [(1,), (2,)]
    execute(changed, "UPDATE parent SET name = IF(id = 1, 'one', 'two'), changed_at = '2026-01-01 00:00:00'")
    # nothing is in the way any more
    assert apply_file(path).ids == 5
    found = rows_of(changed, "SELECT id, name, CAST(changed_at AS char) FROM parent ORDER BY id")
    assert found == [(11, "one", "2026-01-01 00:00:00"), (12, "two", "2026-01-01 00:00:00")]
    assert rows_of(changed, "SELECT parent FROM child ORDER BY id") == [(11,), (12,), (None,)]
    engine = sa.create_engine(changed)
    with engine.begin() as connection:
        # the counter of the table whose ids changed goes on above them
        assert connection.execute(sa.text("INSERT INTO parent (name) VALUES ('new')")).lastrowid == 13
    engine.dispose()
    for url in (kept, changed):
        execute(
            url, "CREATE TABLE plain (id int AUTO_INCREMENT PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO plain VALUES (1)"
        )
    with pytest.raises(MergeError, match="plain is of the engine MyISAM, which has no transactions"):
        plan_of(kept, changed, tmp_path / "other.plan", independent=["parent.id"])


SQLITE = """
CREATE TABLE parent (id INTEGER PRIMARY KEY AUTOINCREMENT, "na:me" TEXT, "%s" DATETIME)
--
CREATE TABLE child (parent INTEGER NOT NULL REFERENCES parent ON UPDATE SET NULL, n INTEGER, UNIQUE (parent, n))
--
CREATE TABLE code (code TEXT PRIMARY KEY, n INTEGER)
--
CREATE TRIGGER touch AFTER UPDATE ON parent BEGIN UPDATE parent SET "na:me" = 'touched'; END
--
INSERT INTO parent ("na:me", "%s") VALUES ('one', 'not a date'), ('two', 5)
--
INSERT INTO child VALUES (1, 1), (1, 2), (2, 1)
--
INSERT INTO code VALUES (NULL, 1), (NULL, 2), (NULL, 3)
"""


def test_sqlite_keeps_triggers_values_of_any_type_and_null_in_a_key(two: Two, tmp_path: Path) -> None:
    kept, changed = two("sqlite", SQLITE)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path, independent=["parent.id", "child.n"])
    apply_file(path)
    assert rows_of(changed, "SELECT * FROM parent ORDER BY id") == [(11, "one", "not a date"), (12, "two", 5)]
    assert rows_of(changed, "SELECT * FROM child ORDER BY 1, 2") == [(11, 1), (11, 2), (12, 1)]
    assert rows_of(changed, "SELECT count(*) FROM code") == [(3,)]
    assert rows_of(changed, "SELECT name FROM sqlite_master WHERE type = 'trigger'") == [("touch",)]
    assert rows_of(changed, "SELECT seq FROM sqlite_sequence") == [(12,)]


# --- refusals --------------------------------------------------------------------------------------------


@pytest.fixture
def small(two: Two, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    kept, changed = two("sqlite", SQLITE)
    yield kept, changed, tmp_path / "merge.plan"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO child VALUES (99, 1)", "rows of child whose parent leads to no row of parent, such as 99"),
        (f"UPDATE parent SET id = {1 << 60} WHERE id = 2", "--layout"),
        (f"UPDATE parent SET id = {1 << 60} WHERE id = 2", "--counter parent.id"),
    ],
)
def test_databases_that_cannot_be_merged_are_refused(
    small: tuple[str, str, Path], statement: str, message: str
) -> None:
    kept, changed, path = small
    for url in (kept, changed):
        execute(url, "DROP TRIGGER touch", "UPDATE child SET parent = 1 WHERE parent = 2 AND n > 1", statement)
        if "UPDATE" in statement:
            execute(url, f"UPDATE child SET parent = {1 << 60} WHERE parent = 2")
    with pytest.raises(MergeError, match="Nothing was planned") as refused:
        plan_of(kept, changed, path, independent=["parent.id", "child.n"])
    assert message in str(refused.value)
    assert not path.exists()


def test_a_plan_is_refused_when_the_databases_have_changed(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path, independent=["parent.id", "child.n"])
    with pytest.raises(MergeError, match="already exists"):
        plan_of(kept, changed, path, independent=["parent.id", "child.n"])
    execute(kept, "INSERT INTO parent (id) VALUES (12)")
    with pytest.raises(MergeError, match="12 is a new id of the plan, and is in use"):
        apply_file(path)
    execute(kept, "DELETE FROM parent WHERE id = 12")
    execute(changed, "INSERT INTO child VALUES (1, 7)")
    with pytest.raises(MergeError, match="child has 4 rows, and had 3 when the plan was made"):
        apply_file(path)
    execute(changed, "DELETE FROM child WHERE n = 7", "ALTER TABLE child ADD COLUMN other REFERENCES parent")
    with pytest.raises(MergeError, match="are not as they were when the plan was made"):
        apply_file(path)
    assert rows_of(changed, "SELECT name FROM sqlite_master WHERE name LIKE 'snowredis%'") == []


def test_one_database_under_two_urls_is_one(database_kind: DatabaseServer, tmp_path: Path) -> None:
    url = database_kind.new_database()
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
    (tmp_path / "link.db").symlink_to(url.removeprefix("sqlite:///"))
    others = {
        "sqlite": f"sqlite:///{tmp_path}/link.db",
        "postgresql": f"{url}&application_name=x",
        "mariadb": f"{url}&connect_timeout=7",
    }
    with pytest.raises(MergeError, match="both URLs lead to one database"):
        plan_of(url, others[database_kind.name], tmp_path / "merge.plan")


def test_a_write_between_the_batches_is_found(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path, independent=["parent.id", "child.n"])

    class Meddling(Progress):
        def start(self, text: str, total: float = 0) -> None:
            if text.startswith("changing parent"):
                execute(changed, "DROP TRIGGER touch", """UPDATE parent SET "na:me" = 'other' WHERE id = 1""")

    with pytest.raises(MergeError, match="parent has other values than before, besides its ids"):
        apply_file(path, progress=Meddling())


def test_a_row_that_was_made_since_with_an_old_id_is_in_the_way_of_an_undo(small: tuple[str, str, Path]) -> None:
    kept, changed, path = small
    plan_of(kept, changed, path, independent=["parent.id", "child.n"])
    apply_file(path)
    execute(changed, "INSERT INTO parent (id) VALUES (2)")
    with pytest.raises(MergeError, match=r"parent\.id has a row with the id 2, which another row gets back"):
        revert(changed, finished=True, batch_rows=50, progress=Progress())
    execute(changed, "DELETE FROM parent WHERE id = 2", "INSERT INTO parent (id) VALUES (77)")
    # a row that was made since stays as it is
    revert(changed, finished=True, batch_rows=50, progress=Progress())
    assert rows_of(changed, "SELECT id FROM parent ORDER BY 1") == [(1,), (2,), (77,)]


def test_files_that_are_no_plan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MergeError, match="there is no plan"):
        open_plan(tmp_path / "none").__enter__()
    (tmp_path / "text").write_text("not a plan")
    with pytest.raises(MergeError, match="is not a plan of this version"):
        open_plan(tmp_path / "text").__enter__()
