"""SQL of ids: real databases compute what Python does, and put each id into the partition of its time."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowredis.core.layout import Layout
from snowredis.core.presets import layouts, resolve_layout
from snowredis.core.sql import functions, partitions
from snowredis.core.text import encode
from snowredis.core.values import MAX_ID
from snowredis.errors import ConfigError
from tests.support.databases import DatabaseServer

if TYPE_CHECKING:
    import sqlalchemy as sa
else:
    # free-threaded Pythons may have none
    sa = pytest.importorskip("sqlalchemy")

LAYOUTS = [
    "default", "twitter", "sonyflake", "uid-generator", "game-shards", "js-safe",
    "63/0/0/0/0;epoch_ms=0", "20/0/0/3/40;tick_ms=37;epoch_ms=7",
]  # fmt: skip
# in partitions
MANY = 100_000
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sample(layout: Layout, rng: random.Random, count: int) -> list[int]:
    """Ids of the layout up to the year 3000, with those at its edges."""
    last = min(layout.max_tick, layout.tick_at(32_503_680_000_000))
    ticks = [0, 1, last, *(rng.randrange(last + 1) for _ in range(count))]
    below = layout.timestamp_shift
    return [tick << below | low for tick in ticks for low in {0, rng.getrandbits(below) if below else 0}]


def moments(layout: Layout, rng: random.Random) -> list[datetime]:
    """Times between microseconds before the epoch and the year 3000."""
    at = [layout.ms_at(0), layout.ms_at(1), layout.ms_at(1000), min(layout.end_ms, 32_503_680_000_000)]
    at += [rng.randrange(32_503_680_000_000) for _ in range(20)]
    micros = [ms * 1000 + more for ms in at for more in (-1, 0, 1, 500) if ms * 1000 + more > 0]
    return [UNIX_EPOCH + timedelta(microseconds=us) for us in micros]


def expected_first(layout: Layout, moment: datetime) -> int:
    return layout.id_range(moment, moment)[0]


@pytest.fixture(scope="module")
def postgresql(postgresql_server: DatabaseServer) -> Iterator[sa.Connection]:
    engine = sa.create_engine(postgresql_server.new_database())
    with engine.begin() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'Asia/Kathmandu'")
        yield connection


@pytest.fixture(scope="module")
def mariadb(mariadb_server: DatabaseServer) -> Iterator[sa.Connection]:
    engine = sa.create_engine(mariadb_server.new_database())
    with engine.begin() as connection:
        connection.exec_driver_sql("SET time_zone = '+05:45'")
        yield connection


def run(connection: sa.Connection, statements: Iterator[str]) -> None:
    for statement in statements:
        if not statement.startswith("--"):
            connection.exec_driver_sql(statement.replace("%", "%%"))


@pytest.mark.parametrize("name", ["postgresql", "mariadb", "mysql"])
@pytest.mark.parametrize("spec", LAYOUTS)
def test_a_server_computes_what_python_computes(name: str, spec: str, request: pytest.FixtureRequest) -> None:
    # MariaDB takes what MySQL takes, too
    connection: sa.Connection = request.getfixturevalue("mariadb" if name == "mysql" else name)
    layout, rng = resolve_layout(spec), random.Random(spec)
    run(connection, functions(name, layout))
    for an_id in sample(layout, rng, 40):
        row = connection.execute(
            sa.text(f"SELECT snowredis_time({an_id}), snowredis_worker({an_id}), snowredis_text({an_id})")
        ).one()
        time: Any = row[0]
        parts = layout.decode(an_id)
        assert (time if time.tzinfo else time.replace(tzinfo=UTC)) == parts.time, an_id
        assert (row[1], row[2]) == (parts.worker, encode(an_id, "base62"))
    for moment in moments(layout, rng):
        literal = f"{moment:%Y-%m-%d %H:%M:%S.%f}" + ("+00" if name == "postgresql" else "")
        found = connection.execute(sa.text(f"SELECT snowredis_first_id('{literal}')")).scalar()
        assert found == expected_first(layout, moment), moment


def test_pg_partman_gets_an_encoder_and_a_decoder_that_are_inverse(postgresql: sa.Connection) -> None:
    run(postgresql, functions("postgresql", layouts["default"]))
    day = "timestamptz '2026-03-01 00:00:00+00'"
    for column in (f"snowredis_time_encoder({day})", f"snowredis_time_encoder({day})::text"):
        assert postgresql.execute(sa.text(f"SELECT snowredis_time_decoder({column}) = {day}")).scalar()
    past = postgresql.execute(sa.text("SELECT snowredis_first_id('infinity'), snowredis_first_id('-infinity')")).one()
    assert tuple(past) == (MAX_ID, 0)


@pytest.mark.parametrize("spec", LAYOUTS)
@pytest.mark.parametrize("dialect", ["sqlite", "duckdb"])
def test_an_embedded_database_computes_what_python_computes(dialect: str, spec: str) -> None:
    layout, rng = resolve_layout(spec), random.Random(spec)
    statements = [line for line in functions(dialect, layout) if not line.startswith("--")]
    if dialect == "sqlite":
        database: Any = sqlite3.connect(":memory:")
    else:
        database = pytest.importorskip("duckdb").connect()
        for statement in statements:
            database.execute(statement)
        calls = ("time(?::BIGINT)", "first_id(?::TIMESTAMP)", "worker(?::BIGINT)", "text(?::BIGINT)")
        statements = [f"SELECT snowredis_{call}" for call in calls]
    time, first, worker, text = statements

    def ask(statement: str, value: Any) -> Any:
        named = {"id": value, "moment": value} if dialect == "sqlite" else [value]
        return database.execute(statement, named).fetchone()[0]

    for an_id in sample(layout, rng, 20):
        parts = layout.decode(an_id)
        found = ask(time, an_id)
        found = datetime.fromisoformat(found) if isinstance(found, str) else found
        assert found.replace(tzinfo=UTC) == parts.time
        assert (ask(worker, an_id), ask(text, an_id)) == (parts.worker, encode(an_id, "base62"))
    for exact in moments(layout, rng):
        # a time of SQLite has milliseconds
        moment = exact.replace(microsecond=exact.microsecond // 1000 * 1000)
        found = ask(first, f"{moment:%Y-%m-%d %H:%M:%S.%f}"[:-3])
        assert found == expected_first(layout, moment), moment


@pytest.mark.parametrize("spec", LAYOUTS)
def test_clickhouse_computes_what_python_computes(spec: str) -> None:
    chdb = pytest.importorskip("chdb.session")
    layout, rng, session = resolve_layout(spec), random.Random(spec), chdb.Session()
    for statement in functions("clickhouse", layout):
        session.query(statement)

    def ask(expressions: list[str]) -> list[str]:
        return str(session.query(f"SELECT arrayJoin([{','.join(expressions)}])")).splitlines()

    # times end in 2299 there
    ids = [an_id for an_id in sample(layout, rng, 20) if layout.decode(an_id).timestamp_ms < 10_000_000_000_000]
    assert [int(line) for line in ask([f"snowredis_worker(toInt64({an_id}))" for an_id in ids])] == [
        layout.decode(an_id).worker for an_id in ids
    ]
    assert ask([f"snowredis_text(toInt64({an_id}))" for an_id in ids]) == [
        f'"{encode(an_id, "base62")}"' for an_id in ids
    ]
    times = [f"toUnixTimestamp64Milli(snowredis_time(toInt64({an_id})))" for an_id in ids]
    assert [int(line) for line in ask(times)] == [layout.decode(an_id).timestamp_ms for an_id in ids]
    at = [moment for moment in moments(layout, rng) if moment.year < 2290]
    first = ask([f"snowredis_first_id('{moment:%Y-%m-%d %H:%M:%S.%f}')" for moment in at])
    assert [int(line) for line in first] == [expected_first(layout, moment) for moment in at]
    session.close()


def test_many_ids_are_in_the_partition_of_their_time_in_postgresql(postgresql: sa.Connection) -> None:
    layout, start = layouts["default"], datetime(2026, 1, 1, tzinfo=UTC)
    start_ms, day_ms = int(start.timestamp() * 1000), 86_400_000
    postgresql.exec_driver_sql("CREATE TABLE orders (id bigint NOT NULL, day int) PARTITION BY RANGE (id)")
    run(postgresql, partitions("postgresql", layout, "orders", by="day", start_ms=start_ms, count=30))
    with postgresql.connection.cursor().copy("COPY orders FROM STDIN") as copy:
        copy.write("".join(f"{an_id}\t{day}\n" for an_id, day in many_ids(layout, start_ms, day_ms)))
    rows = postgresql.exec_driver_sql(
        "SELECT tableoid::regclass::text, min(day), max(day), count(*) FROM orders GROUP BY 1 ORDER BY 1"
    ).all()
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (f"orders_p202601{day + 1:02}", day, day) for day in range(30)
    ]
    assert sum(row[3] for row in rows) == MANY


def test_many_ids_are_in_the_partition_of_their_time_in_mariadb(mariadb: sa.Connection) -> None:
    layout, start_ms = layouts["default"], 1767225600000
    mariadb.exec_driver_sql("CREATE TABLE orders (id bigint, day int) ENGINE=Aria TRANSACTIONAL=0")
    run(mariadb, partitions("mariadb", layout, "orders", by="day", start_ms=start_ms, count=30))
    rows = many_ids(layout, start_ms, 86_400_000)
    for at in range(0, len(rows), 20_000):
        values = ",".join(map(str, rows[at : at + 20_000]))
        mariadb.exec_driver_sql(f"INSERT INTO orders VALUES {values}")
    for day in range(30):
        found = mariadb.exec_driver_sql(f"SELECT min(day), max(day) FROM orders PARTITION (p202601{day + 1:02})").one()
        assert tuple(found) == (day, day)
    assert mariadb.exec_driver_sql("SELECT count(*) FROM orders").scalar() == MANY


def many_ids(layout: Layout, start_ms: int, day_ms: int) -> list[tuple[int, int]]:
    """Different ids of 30 days, with the first and last of each, and their days."""
    rng = np.random.default_rng(1)
    days = [layout.id_range(start_ms + day * day_ms, start_ms + (day + 1) * day_ms) for day in range(30)]
    ends = np.array([[low, high - 1] for low, high in days], dtype=np.int64).ravel()
    ids = np.unique(np.concatenate([ends, rng.integers(ends[0], ends[-1], MANY + MANY // 10)]))
    chosen = rng.choice(np.setdiff1d(ids, ends), MANY - len(ends), replace=False)
    ids = np.sort(np.concatenate([ends, chosen]))
    times_ms = (ids >> layout.timestamp_shift) * layout.tick_ms + layout.epoch_ms
    found = (times_ms - start_ms) // day_ms
    return list(zip(ids.tolist(), found.tolist(), strict=True))


@given(st.integers(1735689600000, 3_000_000_000_000), st.sampled_from(["day", "month"]))
def test_partitions_follow_each_other_without_a_gap(start_ms: int, by: str) -> None:
    found = list(partitions("postgresql", layouts["default"], "s.t", by=by, start_ms=start_ms, count=14))
    lows, highs = zip(*(map(int, re.findall(r"\((\d+)\)", statement)) for statement in found), strict=True)
    assert lows[1:] == highs[:-1]
    assert lows[0] <= layouts["default"].id_range(start_ms, start_ms)[0] < highs[0]


@pytest.mark.parametrize(
    ("dialect", "options", "why"),
    [
        ("oracle", {}, "Use one of postgresql"),
        ("sqlite", {}, "Use postgresql, mariadb or mysql"),
        ("mariadb", {"table": "a;b"}, "is not a name"),
        ("mariadb", {"table": "a.b.c"}, "is not a name"),
        ("mariadb", {"column": "a`"}, "is not a name"),
        ("mariadb", {"by": "hour"}, "by day or month"),
        ("mariadb", {"count": 5_000}, "1 to 4000"),
        ("mariadb", {"start_ms": 0}, "no id of the layout"),
        ("mariadb", {"start_ms": 253_402_300_700_000}, "the last one"),
    ],
)
def test_what_cannot_be_partitions_is_refused(dialect: str, options: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"table": "t", "by": "month", "start_ms": 1767225600000, "count": 2} | options
    with pytest.raises(ConfigError, match=why):
        list(partitions(dialect, layouts["default"], **given))


def test_the_end_of_63_bits_is_maxvalue() -> None:
    whole = resolve_layout("1/0/0/0/62;tick_ms=60000;epoch_ms=1767225600000")
    (statement,) = partitions("postgresql", whole, "t", by="day", start_ms=1767225600000, count=1)
    assert statement.endswith("FROM (0) TO (MAXVALUE);")
