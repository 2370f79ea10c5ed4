"""Readers behind PgBouncer, and connectors that read a view below a mark, from the primary or a replica."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from snowredis.core.sql import fence
from snowredis.errors import ConfigError
from snowredis.readers import Watermark
from tests.readers.replica import replica_of
from tests.readers.storm import LAYOUT, LONG_LAG_S, Plan, connect, keep_mark, make_table, run, statements_of_page, storm
from tests.readers.test_readers import id_of, insert
from tests.support.databases import DatabaseServer, MissingDatabase, postgresql
from tests.support.pgbouncer import pgbouncer
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def test_no_row_is_missed_behind_a_pooler_in_partitions_and_on_a_replica_while_all_are_killed_and_fences_change(
    server: RedisServer,
) -> None:
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(postgresql())
        try:
            pooler, replica = stack.enter_context(pgbouncer(own, size=12)), stack.enter_context(replica_of(own))
        except MissingDatabase as error:
            pytest.skip(str(error))
        plan = Plan(4.0, 5, writers=3, hard=True)
        found = storm(own, server.url, plan, pooler=pooler, replica=replica)
        assert found.missed_below_marks() == 0
        assert found.twice == 0
        on_replica = connect(replica.url())
        with pytest.raises(ConfigError, match="this is a replica"):
            Watermark(on_replica, LAYOUT, tables=["orders"]).advance()
        on_replica.dispose()


@pytest.fixture
def engine(postgresql_server: DatabaseServer) -> Iterator[sa.Engine]:
    """Database of the page, with what is run there once."""
    made = connect(postgresql_server.new_database())
    make_table(made)
    run(made, *statements_of_page())
    yield made
    made.dispose()


@contextlib.contextmanager
def keeping(engine: sa.Engine) -> Iterator[threading.Thread]:
    """Run the program of the page."""
    stop = threading.Event()
    thread = threading.Thread(target=keep_mark, args=(engine.url.render_as_string(False), stop))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def view(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT id FROM orders_settled ORDER BY id").scalars())


def mark(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT next_id FROM orders_mark").scalar_one())


def test_the_view_has_a_row_when_no_older_one_can_come(engine: sa.Engine) -> None:
    with keeping(engine):
        eventually(lambda: mark(engine) > 0, "a mark", 30)
        early, late = id_of(0), id_of(0, 1)
        with engine.connect() as writer:
            writer.exec_driver_sql(f"INSERT INTO orders VALUES ({early}, 0)")
            insert(engine, late)
            time.sleep(LONG_LAG_S + 0.3)
            assert view(engine) == []
            writer.commit()
        eventually(lambda: view(engine) == sorted([early, late]), "both rows in the view", 30)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_mark_of_the_view_stands_still_without_the_fence_and_after_it_was_made_anew(engine: sa.Engine) -> None:
    with keeping(engine):
        eventually(lambda: mark(engine) > 0, "a mark", 30)
    run(engine, "DROP TRIGGER snowredis_fence ON orders")
    before = mark(engine)
    for _ in range(2):
        with keeping(engine) as program:
            # it is refused, and ends
            program.join(30)
            assert not program.is_alive()
        assert mark(engine) == before
        run(engine, fence("postgresql", LAYOUT, "orders", lag_ms=500))
