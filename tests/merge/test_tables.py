"""Ids from databases: SQLite, PostgreSQL and MariaDB, in pages; and the same findings by SQL."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from snowredis.core.presets import layouts
from snowredis.merge import SourceError, databases
from snowredis.merge.check import check_sources
from snowredis.merge.databases import with_driver
from snowredis.merge.findings import ProblemKind
from snowredis.merge.progress import Progress
from snowredis.merge.sources import Source, parse_sources
from snowredis.merge.workspace import Workspace
from tests.support.databases import DatabaseServer

LAYOUT = layouts["twitter"]
NOW_MS = 1_767_225_600_000
START = LAYOUT.tick_at(NOW_MS) - 1_000_000
NEW = [LAYOUT.compose(tick=START + at * 100, worker=at % 5) for at in range(250)]
# a counter, an id of the future, negative ones, one that is there three times, and NULL
OLD: list[int | None] = [1, 2, *NEW[:30], NEW[0], NEW[0], LAYOUT.compose(tick=START + 2_000_000), -5, None, None]


@pytest.fixture
def url(database_kind: DatabaseServer) -> str:
    """A database with the tables "new", whose ids are its key, and "old ones", whose ids have no index."""
    made = database_kind.new_database()
    engine = sa.create_engine(made)
    meta = sa.MetaData()
    new = sa.Table("new", meta, sa.Column("id", sa.BigInteger, primary_key=True))
    old = sa.Table("old ones", meta, sa.Column("the id", sa.BigInteger), sa.Column("name", sa.String(20)))
    meta.create_all(engine)
    with engine.begin() as connection:
        connection.execute(new.insert(), [{"id": an_id} for an_id in NEW])
        connection.execute(old.insert(), [{"the id": an_id, "name": f"n{at}"} for at, an_id in enumerate(OLD)])
    engine.dispose()
    return made


def sources_of(url: str) -> list[Source]:
    return parse_sources([f"a={url}#new.id", f'b={url}#"old ones"."the id"'])


def test_a_table_is_checked_as_a_file_is_and_sql_says_the_same(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(databases.STREAMED, "yield_per", 100)
    sources = sources_of(url)
    with Workspace() as workspace:
        result = check_sources(workspace, sources, LAYOUT, Progress(), now_ms=NOW_MS)
    assert [(source.rows, source.ids) for source in result.sources] == [(250, 250), (38, 36)]
    assert (result.repeated_ids, result.repeated_rows) == (30, 62)
    assert {(problem.source, problem.kind): problem.count for problem in result.problems} == {
        ("b", ProblemKind.MISSING): 2,
        ("b", ProblemKind.NEGATIVE): 1,
        ("b", ProblemKind.FUTURE): 1,
        ("b", ProblemKind.COUNTER): 2,
    }
    # both tables as an SQL user would compare them
    both = "SELECT 'a' AS source, id FROM new UNION ALL SELECT 'b', {} FROM {}"
    engine = sa.create_engine(url)
    name = engine.dialect.identifier_preparer.quote_identifier
    both = both.format(name("the id"), name("old ones"))
    with engine.connect() as connection:
        repeated = connection.exec_driver_sql(
            f"SELECT id, count(*) FROM ({both}) AS ids GROUP BY id HAVING count(*) > 1 AND id IS NOT NULL ORDER BY id"
        ).all()
        shared = connection.exec_driver_sql(
            f"SELECT (id >> 12) & 31 AS worker FROM ({both}) AS ids WHERE id BETWEEN {NEW[0]} AND {NEW[-1]} "
            "GROUP BY 1 HAVING count(DISTINCT source) > 1 ORDER BY 1"
        ).all()
    engine.dispose()
    times = Counter[int]()
    for place in result.examples:
        times[place.an_id] += place.times
    assert [tuple(row) for row in repeated[:20]] == sorted(times.items())
    (pair,) = result.shared_workers
    workers = [row[0] for row in shared]
    assert (pair.workers, pair.first, pair.last) == (len(workers), workers[0], workers[-1])


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nothing.id", "there is no table 'nothing'. .*It has .*'new'.*; name one of these"),
        ("new.nothing", "table 'new' has no column 'nothing'. .*It has 'id'; name"),
        ('"old ones".name', "holds no ids, but 'n0', 'n1', 'n2'"),
    ],
)
def test_a_table_or_column_that_is_not_there_is_refused(url: str, place: str, says: str) -> None:
    with Workspace() as workspace, pytest.raises(SourceError, match=says):
        check_sources(workspace, parse_sources([f"a={url}#{place}"]), LAYOUT, Progress())


# --- SQLite, which stores any type in any column ---------------------------------------------------


def sqlite_with(path: Path, kind: str, values: Sequence[object]) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t (id {kind})")
        connection.execute("CREATE INDEX i ON t (id)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    return f"sqlite:///{path}#t.id"


def test_values_of_other_types_in_a_column_of_integers_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(databases.STREAMED, "yield_per", 4)
    # the same value on more than a page
    values = [*NEW[:9], *[NEW[3]] * 10, None, "abc", 1.5, b"\1", "12x"]
    sources = parse_sources([sqlite_with(tmp_path / "s.db", "INTEGER", values)])
    with Workspace() as workspace:
        result = check_sources(workspace, sources, LAYOUT, Progress(), now_ms=NOW_MS)
    assert (result.ids, result.repeated_ids, result.repeated_rows) == (19, 1, 11)
    assert {problem.kind: problem.count for problem in result.problems} == {
        ProblemKind.MISSING: 1,
        ProblemKind.DECIMAL: 1,
        ProblemKind.TEXT: 3,
    }


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///missing.db#t.id", "there is no SQLite file 'missing.db'"),
        ("sqlite://#t.id", "there is no SQLite file"),
        ("postgresql://127.0.0.1:1/x#t.id", "check that the server runs"),
        ("oracle://h/x#t.id", "oracle is not supported"),
        ("nonsense://h/x#t.id", "nonsense is not supported"),
    ],
)
def test_a_database_that_cannot_be_reached_is_refused_with_advice(url: str, says: str) -> None:
    with Workspace() as workspace, pytest.raises(SourceError, match=says):
        check_sources(workspace, parse_sources([url]), LAYOUT, Progress())
    assert not Path("missing.db").exists()


def test_a_column_of_floats_is_refused(tmp_path: Path) -> None:
    text = sqlite_with(tmp_path / "s.db", "REAL", [1.0])
    with Workspace() as workspace, pytest.raises(SourceError, match="loses the last digits"):
        check_sources(workspace, parse_sources([text]), LAYOUT, Progress())


# --- drivers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://db/game", "postgresql+psycopg"),
        ("postgresql+pg8000://db/game", "postgresql+pg8000"),
        ("mysql://db/game", "mysql+pymysql"),
        ("mariadb://db/game", "mariadb+pymysql"),
        ("sqlite:///game.db", "sqlite"),
    ],
)
def test_a_url_without_a_driver_gets_that_of_its_database(url: str, driver: str) -> None:
    assert with_driver(sa.make_url(url)).drivername == driver
