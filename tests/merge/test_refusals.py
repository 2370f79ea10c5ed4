"""Refusals before the first change, decisions that a person must make, and rows that are the same under other ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.merge import MergeError, SourceError, Undecided
from snowredis.merge.apply import revert
from snowredis.merge.databases import open_database
from snowredis.merge.progress import Progress
from tests.merge.test_apply import apply_file, plan_of, printed
from tests.support.databases import DatabaseServer
from tests.support.statements import execute, rows_of

PARENTS = "CREATE TABLE parent (id int PRIMARY KEY, name varchar(20)); INSERT INTO parent VALUES (1, 'x'), (2, 'y')"
CHILDREN = "CREATE TABLE child (n int PRIMARY KEY, parent_id int, FOREIGN KEY (parent_id) REFERENCES parent (id)); INSERT INTO child VALUES (5, 1), (9, 2)"
FAMILY = f"{PARENTS}; {CHILDREN}"
Two = Callable[..., tuple[str, str]]


OPTIONS: dict[str, Any] = {"independent": ["parent.id", "child.n"]}


OBSTACLES = {
    "postgresql": {
        "ALTER TABLE parent ADD twice int GENERATED ALWAYS AS (id * 2) STORED": "parent.twice is computed from an id",
        "ALTER TABLE parent ADD CONSTRAINT few CHECK (id < 100)": "the check few of parent is about an id",
        "CREATE VIEW one AS SELECT * FROM parent WHERE id = 1": "the view one compares an id with",
        "CREATE VIEW two AS SELECT * FROM child WHERE parent_id IN (1, 2)": "the view two compares an id with",
        "CREATE VIEW three AS SELECT * FROM child WHERE parent_id::bigint BETWEEN 1 AND 2": "the view three compares an",
        'CREATE TABLE odd ("an id" int PRIMARY KEY CONSTRAINT of_odd CHECK ("an id" < 9)); INSERT INTO odd VALUES (1)': (
            "the check of_odd of odd is about an id"
        ),
    },
    "mariadb": {
        "ALTER TABLE parent ADD twice int AS (id * 2)": "parent.twice is computed from an id",
        "ALTER TABLE child ADD CONSTRAINT few CHECK (parent_id <> 7)": "the check few of child is about an id",
        "CREATE VIEW first AS SELECT * FROM parent WHERE id = 1": "the view first compares an id with",
    },
    "sqlite": {"CREATE VIEW first AS SELECT * FROM parent WHERE id IN (1, 2)": "the view first compares an id with"},
}


@pytest.mark.parametrize("kind", OBSTACLES)
def test_obstacles_are_refused_before_the_first_change(two: Two, tmp_path: Path, kind: str) -> None:
    kept, changed = two(kind, f"{FAMILY}; {'; '.join(OBSTACLES[kind])}")
    with pytest.raises(MergeError) as refused:
        plan_of(kept, changed, tmp_path / "merge.plan", **OPTIONS)
    assert [text for text in OBSTACLES[kind].values() if text not in str(refused.value)] == []
    assert list(tmp_path.iterdir()) == []


def test_what_stands_in_the_way_since_the_plan_is_refused_too(two: Two, tmp_path: Path) -> None:
    kept, changed = two("postgresql", FAMILY)
    path = tmp_path / "merge.plan"
    plan_of(kept, changed, path, **OPTIONS)
    execute(changed, "CREATE VIEW first AS SELECT * FROM parent WHERE id = 1")
    with pytest.raises(MergeError, match="the view first compares an id"):
        apply_file(path)
    execute(changed, "DROP VIEW first", "CREATE VIEW all_of_them AS SELECT id FROM parent")
    execute(changed, "CREATE MATERIALIZED VIEW many AS SELECT id FROM parent")
    for url in (kept, changed):
        execute(url, "ALTER TABLE parent ADD CHECK (id > 0)")
    path.unlink()
    plan_of(kept, changed, path, **OPTIONS)
    apply_file(path)
    assert rows_of(changed, "SELECT id FROM all_of_them ORDER BY 1") == [(11,), (12,)]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_right_that_lacks_is_found_before_the_first_change(two: Two, tmp_path: Path, kind: str) -> None:
    kept, changed = two(kind, FAMILY)
    path, url = tmp_path / "merge.plan", sa.make_url(changed)
    name = url.database
    if kind == "postgresql":
        execute(changed, "DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN", "GRANT SELECT, UPDATE ON parent TO weak")
        execute(changed, "GRANT SELECT ON child TO weak", "GRANT ALL ON SCHEMA public TO weak")
        weak = url.set(username="weak").render_as_string(hide_password=False)
    else:
        execute(changed, "CREATE OR REPLACE USER weak@localhost IDENTIFIED BY 'x'")
        execute(changed, f"GRANT SELECT, CREATE, INSERT, TRIGGER, SHOW VIEW ON {name}.* TO weak@localhost")
        execute(changed, f"GRANT UPDATE ON {name}.child TO weak@localhost")
        weak = url.set(username="weak", password="x").render_as_string(hide_password=False)
    plan_of(kept, changed, path, **OPTIONS)
    from snowredis.merge.apply import apply_plan, open_databases
    from snowredis.merge.plan_file import open_plan

    with (
        open_plan(path) as (plan, pairs),
        pytest.raises(MergeError, match=r"(must be owner|denied).*Nothing was changed.*owns the tables"),
    ):
        apply_plan(plan, pairs, open_databases(plan, changed_url=weak), batch_rows=50, progress=Progress())
    inspector = sa.inspect(sa.create_engine(changed))
    assert not [table for table in inspector.get_table_names() if table.startswith("snowredis")]
    with pytest.raises(MergeError, match="no ids were changed"):
        revert(changed, finished=True, batch_rows=50, progress=Progress())


@pytest.mark.parametrize(
    ("kind", "statements", "of_changed", "message"),
    [
        (
            "postgresql",
            FAMILY,
            "ALTER TABLE parent ALTER name TYPE text",
            r"parent\.name is character varying\(20\) in one, and text",
        ),
        ("sqlite", FAMILY, "ALTER TABLE parent ADD more int", r"parent\.more is only in the database that changes"),
        (
            "sqlite",
            FAMILY,
            "CREATE TABLE more (id int PRIMARY KEY)",
            r"the table more is only in the database that changes.*--exclude a table",
        ),
        (
            "mariadb",
            "CREATE TABLE parent (id tinyint PRIMARY KEY); INSERT INTO parent VALUES (1), (100)",
            "",
            r"parent\.id: the new ids reach 200, and TINYINT holds at most 127",
        ),
        (
            "mariadb",
            "CREATE TABLE parent (id bigint unsigned PRIMARY KEY); INSERT INTO parent VALUES (9223372036854775809)",
            "",
            r"parent\.id has the value '9223372036854775809', which is no whole number below 2\*\*63",
        ),
        (
            "sqlite",
            "CREATE TABLE parent (id INT PRIMARY KEY); INSERT INTO parent VALUES ('abc')",
            "",
            r"parent\.id has the value 'abc', which is no whole number",
        ),
        (
            "postgresql",
            "CREATE TYPE e AS ENUM ('a'); CREATE TABLE t (v e)",
            "ALTER TYPE e ADD VALUE 'b'",
            r"t\.v is e e a in",
        ),
        ("postgresql", "CREATE TABLE t (v int)", "ALTER TABLE t ALTER v SET NOT NULL", r"t\.v is integer in one"),
        (
            "postgresql",
            "CREATE DOMAIN d AS int; CREATE TABLE t (v d)",
            "ALTER DOMAIN d ADD CHECK (VALUE > 5)",
            r"t\.v is d d of int4 in one, and d d CHECK \(\(VALUE > 5\)\)",
        ),
        (
            "mariadb",
            "CREATE TABLE t (v char(3))",
            "ALTER TABLE t MODIFY v char(3) CHARSET latin1",
            r"t\.v is char\(3\) utf8",
        ),
        (
            "mariadb",
            "CREATE TABLE t (v int)",
            "ALTER TABLE t ADD CHECK (v > 0)",
            r"CHECK \(.*only in the database that changes",
        ),
        (
            "sqlite",
            "CREATE TABLE s (v int)",
            "CREATE TABLE t (v int)",
            "the table t is only in the database that changes",
        ),
    ],
)
def test_what_differs_and_columns_that_cannot_hold_the_rows_are_refused(
    two: Two, tmp_path: Path, kind: str, statements: str, of_changed: str, message: str
) -> None:
    kept, changed = two(kind, statements, f"\n--\n{of_changed}")
    with pytest.raises(MergeError, match=message):
        plan_of(kept, changed, tmp_path / "merge.plan")


NOT_ON_THE_LIST = [
    ("postgresql", "CREATE TABLE t (n int); CREATE TABLE u () INHERITS (t)", "the table u is part of an inheritance"),
    (
        "postgresql",
        "CREATE TABLE t (id int PRIMARY KEY); CREATE RULE r AS ON UPDATE TO t DO INSTEAD NOTHING",
        "the table t has a rule, which may change",
    ),
    ("postgresql", "CREATE TABLE t (body oid)", r"t\.body is an oid, such as of a large object"),
    ("postgresql", "CREATE TABLE t (at pg_lsn[])", r"t\.at is of the type pg_lsn, which was never tried"),
    (
        "postgresql",
        "CREATE SEQUENCE s; CREATE TABLE t (n int DEFAULT nextval('s'::text))",
        r"t\.n takes numbers of a sequence in a way",
    ),
    ("mariadb", "CREATE TABLE t (n int) ENGINE=Aria", "the table t is of the engine Aria, which has no transactions"),
    ("mariadb", "CREATE TABLE t (n int) WITH SYSTEM VERSIONING", "the table t is system-versioned, and its history"),
    ("mariadb", "CREATE TABLE t (v float)", r"t\.v is a FLOAT, which mariadb-dump writes with six digits"),
    (
        "mariadb",
        "CREATE SEQUENCE s; CREATE TABLE t (n int DEFAULT nextval(s))",
        r"t\.n takes numbers of a sequence, which are not counted",
    ),
    ("mariadb", "CREATE TABLE t (n int INVISIBLE, m int)", r"t\.n is invisible"),
    ("sqlite", "CREATE VIRTUAL TABLE t USING fts5(body)", "the table t is a virtual table: drop it"),
    ("sqlite", "CREATE TABLE t (n int UNIQUE ON CONFLICT REPLACE)", "the table t has a key with ON CONFLICT REPLACE"),
]


@pytest.mark.parametrize(("kind", "statements", "message"), NOT_ON_THE_LIST)
def test_what_is_not_on_the_list_is_refused_and_can_be_excluded(
    two: Two, tmp_path: Path, kind: str, statements: str, message: str
) -> None:
    kept, changed = two(kind, f"CREATE TABLE other (id int PRIMARY KEY); {statements}")
    with pytest.raises(
        MergeError, match=rf"not known to be safe: .*{message}.*\(in the first and the second database\)"
    ):
        plan_of(kept, changed, tmp_path / "p")
    if kind == "mariadb":
        assert plan_of(kept, changed, tmp_path / "p", excluded=["t"]).rows == {"other": 0}


def test_ids_that_a_trigger_keeps_are_no_success(two: Two, tmp_path: Path) -> None:
    kept, changed = two(
        "mariadb", "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (7, 8000), (9, 9000)"
    )
    execute(changed, "CREATE TRIGGER keeps BEFORE UPDATE ON t FOR EACH ROW SET NEW.id = OLD.id")
    plan_of(kept, changed, tmp_path / "p", independent=["t.id"], with_triggers=True)
    with pytest.raises(MergeError, match="t has other values than before, besides its ids"):
        apply_file(tmp_path / "p")


# --- references that must be decided ---------------------------------------------------------------------


HIDDEN = """
CREATE TABLE usr (id int PRIMARY KEY, name varchar(20));
CREATE TABLE boss (id int PRIMARY KEY, name varchar(20), usr_text varchar(20), parent_id int, listed varchar(40), at int, what varchar(20));
CREATE TABLE usr_note (id int PRIMARY KEY, name varchar(20), data {json}, reply int NOT NULL, link varchar(20))
"""
HIDDEN_ROWS = """
INSERT INTO usr VALUES (41, '{0} a'), (57, '{0} b'), (73, '{0} c');
INSERT INTO boss VALUES (301, '{0} d', '41', 305, '41,57', 57, 'usr'),
    (305, '{0} e', '73', NULL, '73', 301, 'boss');
INSERT INTO usr_note VALUES (900, '{0} f', '{{"user": 41, "n": 5}}', 0, '/usr/41'), (907, '{0} g', '{{"user": "57", "n": 6}}', 900, '/usr/57')
"""


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_columns_are_asked_about_by_their_values_whatever_they_are_called(two: Two, tmp_path: Path, kind: str) -> None:
    kept, changed = two(kind, HIDDEN.format(json={"postgresql": "jsonb"}.get(kind, "text")))
    for url, shard in ((kept, "x"), (changed, "y")):
        execute(url, *(part for part in HIDDEN_ROWS.format(shard).split(";") if part.strip()))
    with pytest.raises(Undecided) as refused:
        plan_of(kept, changed, tmp_path / "p")
    assert refused.value.findings == [
        "boss.listed[*]: 100% of its values are ids of usr, which apply does not change: rewrite them between apply "
        "and copy; then --independent boss.listed",
        "boss.usr_text: 100% of its values are ids of usr: --reference boss.usr_text=TABLE.COLUMN or --independent "
        "boss.usr_text",
        "boss.parent_id: 100% of its values are ids of boss: --reference boss.parent_id=boss.id or --independent "
        "boss.parent_id",
        "boss.at where what is 'boss': 100% of its values are ids of boss: --reference 'boss.at=boss.id WHERE "
        "what=boss' or --independent boss.at",
        "boss.at where what is 'usr': 100% of its values are ids of usr: --reference 'boss.at=usr.id WHERE what=usr' "
        "or --independent boss.at",
        "usr_note.data.user: 100% of its values are ids of usr, which apply does not change: rewrite them between "
        "apply and copy; then --independent usr_note.data",
        "usr_note.link (inside a text): 100% of its values are ids of usr, which apply does not change: rewrite them "
        "between apply and copy; then --independent usr_note.link",
        # 0 stands for no row
        "usr_note.reply: 100% of its values are ids of usr_note: --reference usr_note.reply=TABLE.COLUMN or "
        "--independent usr_note.reply",
    ]
    plan = plan_of(
        kept,
        changed,
        tmp_path / "p",
        references=[
            *("boss.usr_text=usr.id", "boss.parent_id=boss.id", "usr_note.reply=usr_note.id"),
            *("boss.at=boss.id WHERE what=boss", "boss.at=usr.id WHERE what=usr"),
        ],
        independent=["boss.listed", "usr_note.data", "usr_note.link"],
    )
    assert [note.partition(":")[0] for note in plan.notes] == [
        *("boss.listed[*]", "usr_note.data.user", "usr_note.link (inside a text)")
    ]
    assert plan.verdict.endswith("usr_note.data (no reference), usr_note.link (no reference)")
    apply_file(tmp_path / "p")
    offsets = {domain.name: domain.offset for domain in plan.domains}
    usr, boss, note = (offsets[f"{name}.id"] for name in ("usr", "boss", "usr_note"))
    assert rows_of(changed, "SELECT usr_text, parent_id, listed, at FROM boss ORDER BY id") == [
        (str(41 + usr), 305 + boss, "41,57", 57 + usr),
        (str(73 + usr), None, "73", 301 + boss),
    ]
    assert rows_of(changed, "SELECT reply FROM usr_note ORDER BY id") == [(0,), (900 + note,)]


POLYMORPHIC = """
CREATE TABLE question (id int PRIMARY KEY, text varchar(20)); CREATE TABLE blog_entries (id int PRIMARY KEY, text varchar(20));
CREATE TABLE comments (id int PRIMARY KEY, owner_type varchar(40), owner_id int, about_kind int, about varchar(20));
INSERT INTO question VALUES (1, 'q1'), (2, 'q2'); INSERT INTO blog_entries VALUES (1, 'b1'), (20, 'b20');
INSERT INTO comments VALUES (100, 'Question', 1, 8, '2'), (101, 'Admin::BlogEntry', 1, 9, '2'),
    (102, 'BlogEntry', 20, 8, '1'), (103, NULL, NULL, NULL, NULL), (104, 'Question', 77, 8, 'x')
"""


def test_references_of_some_rows_follow(database_kind: DatabaseServer, two: Two, tmp_path: Path) -> None:
    kept, changed = two(database_kind.name, POLYMORPHIC)
    path = tmp_path / "merge.plan"
    by_hand = {
        "references": ["comments.about=question.id WHERE about_kind=8"],
        "independent": ["question.id", "blog_entries.id", "comments.id", "comments.about"],
    }
    by_hand["references"] += (found := printed(kept, changed, path, **by_hand))
    assert found == [
        "comments.owner_id=blog_entries.id WHERE owner_type=Admin::BlogEntry",
        "comments.owner_id=blog_entries.id WHERE owner_type=BlogEntry",
        "comments.owner_id=question.id WHERE owner_type=Question",
    ]
    plan = plan_of(kept, changed, path, **by_hand)
    offsets = {domain.name: domain.offset for domain in plan.domains}
    # the id of a question that is gone counts, too: its new number is no other's
    assert offsets == {"question.id": 1000, "blog_entries.id": 100, "comments.id": 10}
    before = rows_of(changed, "SELECT * FROM comments ORDER BY id")
    apply_file(path)
    assert rows_of(changed, "SELECT owner_type, owner_id, about_kind, about FROM comments ORDER BY id") == [
        ("Question", 1001, 8, "1002"),
        ("Admin::BlogEntry", 101, 9, "2"),
        ("BlogEntry", 120, 8, "1001"),
        (None, None, None, None),
        ("Question", 1077, 8, "x"),
    ]
    revert(changed, finished=True, batch_rows=1, progress=Progress())
    assert rows_of(changed, "SELECT * FROM comments ORDER BY id") == before
    execute(changed, "UPDATE comments SET owner_type = 'Unknown' WHERE id = 100")
    finding = r"comments\.owner_id where owner_type is .VALUE.: 100% .*TABLE\.COLUMN WHERE owner_type=VALUE"
    with pytest.raises(Undecided, match=finding):
        plan_of(kept, changed, tmp_path / "other.plan", **by_hand)
    # no reference are only those rows of which nothing is known
    by_hand["independent"] += ["comments.owner_id"]
    plan_of(kept, changed, tmp_path / "other.plan", **by_hand)
    apply_file(tmp_path / "other.plan")
    assert rows_of(changed, "SELECT owner_id FROM comments ORDER BY id") == [(1,), (101,), (120,), (None,), (1077,)]


# --- rows that both have -----------------------------------------------------------------------------------

TAGS = """
CREATE TABLE tag (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE);
CREATE TABLE post (id int PRIMARY KEY, tag int, text varchar(20), FOREIGN KEY (tag) REFERENCES tag (id))
"""


def test_rows_that_both_have_get_the_ids_of_the_other_even_in_a_circle(
    database_kind: DatabaseServer, two: Two, tmp_path: Path
) -> None:
    kept, changed = two(database_kind.name, TAGS)
    execute(
        kept, "INSERT INTO tag VALUES (1, 'red'), (2, 'green'), (3, 'blue')", "INSERT INTO post VALUES (1, 1, 'kept')"
    )
    # red and green are exchanged, own clashes with blue, other is free
    execute(changed, "INSERT INTO tag VALUES (1, 'green'), (2, 'red'), (3, 'own'), (9, 'other')")
    execute(changed, "INSERT INTO post VALUES (1, 1, 'green'), (2, 2, 'red'), (3, 3, 'own'), (4, 9, 'other')")
    path = tmp_path / "merge.plan"
    independent = ["post.id", "tag.id"]
    plan = plan_of(kept, changed, path, matched=["tag=name"], independent=independent)
    (of_tag,) = [domain for domain in plan.domains if domain.name == "tag.id"]
    assert (of_tag.kind, of_tag.renamed, of_tag.at_once) == ("match", 3, True)
    apply_file(path, batch_rows=1)
    assert rows_of(changed, "SELECT id, name FROM tag ORDER BY id") == [
        (1, "red"),
        (2, "green"),
        (9, "other"),
        (10, "own"),
    ]
    relation = "SELECT text, name FROM post JOIN tag ON tag.id = tag ORDER BY 1"
    assert rows_of(changed, relation) == [(name, name) for name in ("green", "other", "own", "red")]
    revert(changed, finished=True, batch_rows=1, progress=Progress())
    assert [name for _, name in rows_of(changed, "SELECT * FROM tag ORDER BY id")] == ["green", "red", "own", "other"]
    assert rows_of(changed, relation) == [(name, name) for name in ("green", "other", "own", "red")]
    execute(changed, "DELETE FROM post", "DELETE FROM tag")
    for options in ({"matched": ["tag=none"]}, {"matched": ["tag"]}):
        with pytest.raises(MergeError, match=r"--match .* cannot be used"):
            plan_of(kept, changed, tmp_path / "other.plan", **options)


def test_a_reference_without_an_index_is_changed_by_one_statement(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowredis.merge.obstacles.SMALL_TABLE", 3)
    monkeypatch.setattr("snowredis.merge.apply._FIRST", 1)
    rows = "INSERT INTO child SELECT n + 10, 1 + n % 2 FROM generate_series(1, 20) n"
    kept, changed = two("postgresql", f"{FAMILY}; {rows}")
    path = tmp_path / "merge.plan"
    plan = plan_of(kept, changed, path, **OPTIONS)
    assert plan.notes[-1] == (
        "child.parent_id has no index: to check its foreign key, PostgreSQL reads the table once for each id of "
        "parent.id that changes. Make one first: CREATE INDEX child_parent_id ON child (parent_id);"
    )
    statements: list[str] = []

    def seen(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        statements.append(text)

    sa.event.listen(sa.Engine, "before_cursor_execute", seen)
    try:
        apply_file(path, batch_rows=1)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", seen)
    assert len([text for text in statements if text.startswith("UPDATE child SET parent_id=CASE")]) == 1


@pytest.mark.parametrize(
    ("kind", "query", "value"),
    [
        ("postgresql", "SELECT current_setting('TimeZone') || current_setting('DateStyle')", "UTCISO, YMD"),
        ("postgresql", "SELECT current_setting('statement_timeout')", "0"),
        ("mariadb", "SELECT @@time_zone", "+00:00"),
        ("mariadb", "SELECT @@sql_safe_updates", 0),
    ],
)
def test_every_session_has_the_same_settings(two: Two, kind: str, query: str, value: object) -> None:
    url, _ = two(kind, FAMILY)
    engine = open_database(url)
    with engine.connect() as connection:
        assert connection.scalar(sa.text(query)) == value
    engine.dispose()


def test_a_url_that_leads_nowhere_is_an_error_of_a_source() -> None:
    with pytest.raises(SourceError, match="there is no SQLite file"):
        open_database("sqlite:///no/such/file.db")
