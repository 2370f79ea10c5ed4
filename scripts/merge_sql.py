#!/usr/bin/env python3
"""Run the SQL that `snowredis merge check --emit-sql` prints on ClickHouse and Spark, and compare it with DuckDB's.

    pip install chdb pyspark; scripts/merge_sql.py          # a minute; Spark needs a Java
    scripts/merge_sql.py clickhouse

chdb is ClickHouse in a Python package. PostgreSQL, MariaDB and SQLite are compared by tests/merge/test_tables.py.
Exit code 1 if an engine says something else. Needs the extra merge: pip install -e '.[merge]'.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb

from snowredis.core.presets import layouts
from snowredis.merge.id_sql import Dialect, queries
from snowredis.merge.sources import parse_sources

LAYOUT = layouts["twitter"]
# 2026-01-01
NOW_MS = 1_767_225_600_000
START = LAYOUT.tick_at(NOW_MS) - 1_000_000
NEW = [LAYOUT.compose(tick=START + at * 100, worker=at % 5, datacenter=at % 2) for at in range(250)]
# a counter, ids that are there twice and three times, one of the future, a negative one, and NULL
OLD = [1, 2, *NEW[:30], NEW[0], NEW[0], LAYOUT.compose(tick=START + 2_000_000), -5, None, None]
TABLES: dict[str, tuple[str, list[Any]]] = {"new": ("id", list(NEW)), "old ones": ("the id", OLD)}
SOURCES = parse_sources(
    ["a=postgresql://host/x#new.id", 'b=postgresql://host/x#"old ones"."the id"'], ["twitter"]
)

Rows = list[tuple[Any, ...]]


def values_of(ids: list[int | None]) -> str:
    return ", ".join("(NULL)" if an_id is None else f"({an_id})" for an_id in ids)


def duckdb_engine() -> Callable[[str], Rows]:
    connection = duckdb.connect()
    for table, (column, ids) in TABLES.items():
        connection.execute(f'CREATE TABLE "{table}" ("{column}" BIGINT)')
        connection.execute(f'INSERT INTO "{table}" VALUES {values_of(ids)}')  # noqa: S608 - numbers of this file
    return lambda text: connection.execute(text).fetchall()


def clickhouse() -> Callable[[str], Rows]:
    from chdb import session

    engine = session.Session()
    engine.query("CREATE DATABASE shards")
    engine.query("USE shards")
    for table, (column, ids) in TABLES.items():
        engine.query(f'CREATE TABLE "{table}" ("{column}" Nullable(Int64)) ENGINE = Memory')
        engine.query(f'INSERT INTO "{table}" VALUES {values_of(ids)}')  # noqa: S608 - numbers of this file
    return lambda text: [tuple(row) for row in json.loads(str(engine.query(text, "JSONCompact")))["data"]]


def spark() -> Callable[[str], Rows]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    engine = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    engine.sparkContext.setLogLevel("ERROR")
    for table, (column, ids) in TABLES.items():
        # a view's name cannot be quoted; of the table the query is given the name that it has here
        frame = engine.createDataFrame([(an_id,) for an_id in ids], f"`{column}` bigint")
        frame.createOrReplaceTempView(table.replace(" ", "_"))
    return lambda text: [tuple(row) for row in engine.sql(text.replace("`old ones`", "`old_ones`")).collect()]


ENGINES: dict[str, tuple[Dialect, Callable[[], Callable[[str], Rows]]]] = {
    "clickhouse": ("clickhouse", clickhouse),
    "spark": ("spark", spark),
}


def comparable(rows: Rows) -> list[str]:
    """Return rows as sorted text: ClickHouse writes integers of 64 bits as text in JSON."""
    return sorted(", ".join(map(str, row)) for row in rows)


def main() -> int:
    expected = duckdb_engine()
    of_duckdb = {
        name: comparable(expected(text)) for name, text in queries(SOURCES, "duckdb", now_ms=NOW_MS).items()
    }
    wrong = 0
    for name in sys.argv[1:] or ENGINES:
        dialect, start = ENGINES[name]
        try:
            run = start()
        except ImportError as error:
            print(f"{name:<12} not run: {error.name} is not installed")
            continue
        for query, text in queries(SOURCES, dialect, now_ms=NOW_MS).items():
            rows = comparable(run(text))
            is_same = rows == of_duckdb[query]
            wrong += not is_same
            print(
                f"{name:<12} {query:<16} {len(rows):>4} rows, {'as DuckDB' if is_same else 'not as DuckDB'}"
            )
            if not is_same:
                print(f"    {rows[:3]}\n    {of_duckdb[query][:3]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
