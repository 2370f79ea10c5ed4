"""Ids from databases: SQLite, PostgreSQL and MariaDB, in pages, with resuming; and the check as SQL, run on them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.core.presets import layouts
from snowredis.merge import SourceError, ingest
from snowredis.merge.check import Check
from snowredis.merge.databases import with_driver
from snowredis.merge.findings import CheckResult, ProblemKind
from snowredis.merge.id_sql import DIALECTS, Dialect, check_as_sql, queries
from snowredis.merge.sources import Source, parse_sources
from tests.support.databases import SERVERS, MissingDatabase

LAYOUT = layouts["twitter"]
NOW_MS = 1_767_225_600_000
START = LAYOUT.tick_at(NOW_MS) - 1_000_000
NEW = [LAYOUT.compose(tick=START + at * 100, worker=at % 5) for at in range(250)]
# a counter, an id of the future, negative ones, one that is there three times, and NULL
OLD: list[int | None] = [
    1,
    2,
    *NEW[:30],
    NEW[0],
    NEW[0],
    LAYOUT.compose(tick=START + 2_000_000),
    -5,
    None,
    None,
]
DIALECT_OF: dict[str, Dialect] = {"sqlite": "sqlite", "postgresql": "postgres", "mariadb": "mysql"}


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the tables "new", whose ids are its key, and "old ones", whose ids have no index."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(SERVERS[request.param]())
        except MissingDatabase as error:
            pytest.skip(str(error))
        made = server.new_database()
        engine = sa.create_engine(made)
        meta = sa.MetaData()
        new = sa.Table("new", meta, sa.Column("id", sa.BigInteger, primary_key=True))
        old = sa.Table("old ones", meta, sa.Column("the id", sa.BigInteger), sa.Column("name", sa.String(20)))
        meta.create_all(engine)
        with engine.begin() as connection:
            connection.execute(new.insert(), [{"id": an_id} for an_id in NEW])
            connection.execute(
                old.insert(), [{"the id": an_id, "name": f"n{at}"} for at, an_id in enumerate(OLD)]
            )
        engine.dispose()
        yield made


def sources_of(url: str) -> list[Source]:
    return parse_sources([f"a={url}#new.id", f'b={url}#"old ones"."the id"'], ["twitter"])


def test_a_table_is_checked_as_a_file_is_and_the_sql_says_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_PAGE_ROWS", 100)
    sources = sources_of(url)
    with Check(sources, threads=1) as check:
        result = check.run(now_ms=NOW_MS)
    assert [(source.rows, source.ids) for source in result.sources] == [(250, 250), (38, 36)]
    assert (result.repeated_ids, result.repeated_rows) == (30, 62)
    assert {(problem.source, problem.kind): problem.count for problem in result.problems} == {
        ("b", ProblemKind.MISSING): 2,
        ("b", ProblemKind.NEGATIVE): 1,
        ("b", ProblemKind.FUTURE): 1,
        ("b", ProblemKind.COUNTER): 2,
    }
    engine = sa.create_engine(url)
    dialect = DIALECT_OF[engine.dialect.name]
    with engine.connect() as connection:
        # "%" in a driver's text would be a parameter
        rows = {
            name: connection.exec_driver_sql(text).mappings().all()
            for name, text in queries(sources, dialect, now_ms=NOW_MS).items()
        }
    engine.dispose()
    compare(result, rows)


def compare(result: CheckResult, rows: dict[str, Any]) -> None:
    """Compare what the queries say with what the check says."""
    assert len(rows["repeated"]) == result.repeated_ids
    assert sum(int(row["times"]) for row in rows["repeated"]) == result.repeated_rows
    assert [int(row["id"]) for row in rows["repeated"]][:20] == [example.an_id for example in result.examples]
    assert {
        (row["source"], row["datacenter"], row["worker"]): row["repeated_ids"] for row in rows["made_by"]
    } == {(part.source, part.datacenter, part.worker): part.ids for part in result.by_worker}
    named = {problem.kind.value.replace("-", "_"): problem.count for problem in result.problems}
    (problems,) = [row for row in rows["problems"] if row["source"] == "b"]
    assert {kind: int(problems[kind]) for kind in named} == named
    shared = [(int(row["worker"]), int(row["sources"])) for row in rows["shared_workers"]]
    assert shared == [(worker, 2) for worker in range(result.shared_workers[0].workers)]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nothing.id", "there is no table 'nothing'. .*It has .*'new'.*; name one of these"),
        ("new.nothing", "table 'new' has no column 'nothing'. .*It has 'id'; name"),
        ('"old ones".name', "holds no ids, but 'n0', 'n1', 'n2'"),
    ],
)
def test_a_table_or_column_that_is_not_there_is_refused(url: str, place: str, says: str) -> None:
    with (
        Check(parse_sources([f"a={url}#{place}"]), threads=1) as check,
        pytest.raises(SourceError, match=says),
    ):
        check.run()


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
    monkeypatch.setattr(ingest, "_PAGE_ROWS", 4)
    # the same value on more than a page
    values = [*NEW[:9], *[NEW[3]] * 10, None, "abc", 1.5, b"\1", "12x"]
    with Check(
        parse_sources([sqlite_with(tmp_path / "s.db", "INTEGER", values)], ["twitter"]), threads=1
    ) as check:
        result = check.run(now_ms=NOW_MS)
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
    with Check(parse_sources([url]), threads=1) as check, pytest.raises(SourceError, match=says):
        check.run()
    assert not Path("missing.db").exists()


def test_a_column_of_floats_is_refused(tmp_path: Path) -> None:
    text = sqlite_with(tmp_path / "s.db", "REAL", [1.0])
    with (
        Check(parse_sources([text]), threads=1) as check,
        pytest.raises(SourceError, match="loses the last digits"),
    ):
        check.run()


# --- SQL -------------------------------------------------------------------------------------------


def test_the_sql_of_files_runs_on_duckdb_as_it_stands(tmp_path: Path) -> None:
    import duckdb

    duckdb.from_query(f"SELECT unnest({NEW}) AS id").write_parquet(str(tmp_path / "a.parquet"))
    (tmp_path / "b.csv").write_text(
        "id\n" + "".join(f"{'' if an_id is None else an_id}\n" for an_id in OLD[:-2])
    )
    sources = parse_sources([f"a={tmp_path}/a.parquet#id", f"b={tmp_path}/b.csv#id"], ["twitter"])
    with Check(sources, threads=1) as check:
        result = check.run(now_ms=NOW_MS)
    rows = {}
    for name, text in queries(sources, "duckdb", now_ms=NOW_MS).items():
        relation = duckdb.sql(text)
        rows[name] = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    compare(result, rows)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_sql_of_every_dialect_is_four_queries_that_its_parser_takes(dialect: Dialect) -> None:
    import sqlglot

    sources = parse_sources(
        ["a=postgresql://u:s3cret@h/db#players.id", "b=mysql://h/x#players.id", "odd '\n.csv#id"]
    )
    script = check_as_sql(sources, dialect)
    statements = [statement for statement in sqlglot.parse(script, read=dialect) if statement is not None]
    assert len(statements) == 4
    assert "s3cret" not in script
    # two tables have the same name, so each is loaded under that of its source
    names = {table.name for statement in statements for table in statement.find_all(sqlglot.exp.Table)}
    assert {"a", "b"} <= names
    assert "players" not in names
    # ClickHouse and Trino have no operators for bits, Spark has some
    functions = {"trino": "BITWISE_RIGHT_SHIFT", "spark": "SHIFTRIGHT", "clickhouse": "bitShiftRight"}
    assert functions.get(dialect, ">>") in script
    assert (">>" in script) is (dialect not in functions)


@pytest.mark.parametrize(
    ("url", "installed", "driver"),
    [
        ("postgresql://db/game", {"psycopg", "psycopg2"}, "postgresql+psycopg"),
        ("postgresql://db/game", {"psycopg2"}, "postgresql+psycopg2"),
        ("postgresql://db/game", set(), "postgresql+psycopg"),
        ("postgresql+pg8000://db/game", {"psycopg"}, "postgresql+pg8000"),
        ("mysql://db/game", {"pymysql"}, "mysql+pymysql"),
        ("mariadb://db/game", {"MySQLdb"}, "mariadb+mysqldb"),
        ("sqlite:///game.db", set(), "sqlite"),
    ],
)
def test_a_url_without_a_driver_gets_one_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, url: str, installed: set[str], driver: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in installed)
    assert with_driver(sa.make_url(url)).drivername == driver
