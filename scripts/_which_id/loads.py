"""Load a table whose primary key is an id of one kind, and look at what that did: speed, sizes, pages written.

Rows are loaded in batches, in the order in which one process makes the ids, as fast as the driver can; the time to
make the ids is not counted. The database's cache is smaller than the table, as it is in most systems that are worried
about this.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from scripts._which_id.kinds import Contestant
from snowredis.integrations.sqlalchemy import GeneratedId
from tests.support import databases

BATCH = 20_000
CACHE_MB = 64
# what else is in a row
PAYLOAD = "x" * 60


class Load(NamedTuple):
    """Result for one kind in one database.

    Attributes:
        rows: how many were loaded; fewer than asked for if the time was over.
        took_s: how long that took.
        index_bytes: size of the index of the primary key; of the table where that is the index.
        table_bytes: size of the table with this index.
        pages_written: how many pages the database wrote until all was on the disk; not its log.
    """

    rows: int
    took_s: float
    index_bytes: int
    table_bytes: int
    pages_written: int


class Database(ABC):
    """A database that tables are loaded into.

    Attributes:
        name: for people.
        page: size of its pages, bytes.
    """

    name: str
    page: int

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)

    def load(self, contestant: Contestant, rows: int, limit_s: float) -> Load:
        """Load *rows* rows, for *limit_s* at most, into a new table, which is dropped at the end."""
        metadata = sa.MetaData()
        settings = {name: value for name, value in contestant.settings.items() if name not in ("url", "bound")}
        column: sa.Column[Any] = sa.Column("id", GeneratedId(contestant.kind, **settings), primary_key=True)
        table = sa.Table(f"rows_{contestant.kind}", metadata, column, sa.Column("payload", sa.String(60)))
        metadata.create_all(self.engine)
        bind: Any = column.type.bind_processor(self.engine.dialect) or (lambda value: value)
        self.settle()
        before, loaded, took_s = self.pages_written(), 0, 0.0
        with contextlib.closing(self.engine.raw_connection()) as connection:
            while loaded < rows and took_s < limit_s:
                batch = [bind(an_id) for an_id in contestant.ids.next_ids(min(BATCH, rows - loaded))]
                began_s = time.perf_counter()
                self.insert(connection, table, batch)
                connection.commit()
                took_s += time.perf_counter() - began_s
                loaded += len(batch)
        began_s = time.perf_counter()
        self.settle()
        took_s += time.perf_counter() - began_s
        pages = self.pages_written() - before
        index_bytes, table_bytes = self.sizes(table)
        metadata.drop_all(self.engine)
        return Load(loaded, took_s, index_bytes, table_bytes, pages)

    def query(self, statement: str) -> Any:
        """Return the first row of the result."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return connection.exec_driver_sql(statement).first()

    @abstractmethod
    def insert(self, connection: Any, table: sa.Table, ids: list[Any]) -> None:
        """Insert a batch."""

    @abstractmethod
    def settle(self) -> None:
        """Write everything to the disk."""

    @abstractmethod
    def pages_written(self) -> int:
        """Return how many pages were written so far."""

    @abstractmethod
    def sizes(self, table: sa.Table) -> tuple[int, int]:
        """Return the bytes of the index of the primary key, and of the table with it."""


class PostgreSQL(Database):
    name, page = "PostgreSQL", 8192

    def insert(self, connection: Any, table: sa.Table, ids: list[Any]) -> None:
        with connection.cursor() as cursor, cursor.copy(f"COPY {table.name} FROM STDIN") as copy:
            for an_id in ids:
                copy.write_row((an_id, PAYLOAD))

    def settle(self) -> None:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("CHECKPOINT")

    def pages_written(self) -> int:
        # statistics of a connection arrive when it ends
        self.engine.dispose()
        time.sleep(1.5)
        return int(self.query("SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter")[0])

    def sizes(self, table: sa.Table) -> tuple[int, int]:
        row = self.query(f"SELECT pg_indexes_size('{table.name}'), pg_total_relation_size('{table.name}')")
        return int(row[0]), int(row[1])


class MariaDB(Database):
    name, page = "MariaDB", 16384

    def insert(self, connection: Any, table: sa.Table, ids: list[Any]) -> None:
        with connection.cursor() as cursor:
            for part in itertools.batched(ids, 5_000) if hasattr(itertools, "batched") else _parts(ids, 5_000):
                cursor.executemany(
                    f"INSERT INTO {table.name} (id, payload) VALUES (%s, '{PAYLOAD}')",  # noqa: S608
                    [(an_id,) for an_id in part],
                )

    def settle(self) -> None:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("SET GLOBAL innodb_max_dirty_pages_pct = 0")
            while self._status("Innodb_buffer_pool_pages_dirty") > 0:
                time.sleep(0.05)
            connection.exec_driver_sql("SET GLOBAL innodb_max_dirty_pages_pct = 90")

    def _status(self, name: str) -> int:
        return int(self.query(f"SHOW GLOBAL STATUS LIKE '{name}'")[1])

    def pages_written(self) -> int:
        return self._status("Innodb_pages_written")

    def sizes(self, table: sa.Table) -> tuple[int, int]:
        self.query(f"ANALYZE TABLE {table.name}")
        sizes = sa.table("tables", sa.column("data_length"), sa.column("index_length"), sa.column("table_name"))
        sizes.schema = "information_schema"
        statement = sa.select(sizes.c.data_length, sizes.c.index_length).where(sizes.c.table_name == table.name)
        with self.engine.connect() as connection:
            data, indexes = connection.execute(statement).one()
        return int(data), int(data) + int(indexes)


class SQLite(Database):
    name, page = "SQLite", 4096

    def __init__(self, url: str) -> None:
        super().__init__(url)

        @sa.event.listens_for(self.engine, "connect")
        def _set_cache(connection: Any, _: Any) -> None:
            # without a journal, what it writes is the pages of the database
            for pragma in (f"cache_size=-{CACHE_MB * 1024}", "journal_mode=OFF", "synchronous=OFF"):
                connection.execute(f"PRAGMA {pragma}")

    def insert(self, connection: Any, table: sa.Table, ids: list[Any]) -> None:
        connection.cursor().executemany(
            f"INSERT INTO {table.name} (id, payload) VALUES (?, '{PAYLOAD}')",  # noqa: S608
            [(an_id,) for an_id in ids],
        )

    def settle(self) -> None:
        """Nothing is left: each batch was committed, to the system's cache."""

    def pages_written(self) -> int:
        counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(counters["wchar"]) // self.page

    def sizes(self, table: sa.Table) -> tuple[int, int]:
        total = self.query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")[0]
        with contextlib.suppress(sa.exc.OperationalError):
            index = self.query(
                f"SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'sqlite_autoindex_{table.name}%'"  # noqa: S608
            )[0]
            return int(index or 0), int(total)
        return 0, int(total)


def _parts(ids: list[Any], size: int) -> Iterator[list[Any]]:
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


@contextlib.contextmanager
def opened_database(name: str) -> Iterator[Database]:
    """Start a private server with a cache of CACHE_MB. Raises databases.MissingDatabase."""
    settings = {
        "postgresql": [f"shared_buffers={CACHE_MB}MB", "max_wal_size=2GB", "checkpoint_timeout=30min"],
        "mariadb": [
            f"innodb-buffer-pool-size={CACHE_MB}M",
            "innodb-log-file-size=256M",
            "skip-log-bin",
            "innodb-io-capacity=20000",
            "innodb-io-capacity-max=40000",
        ],
    }
    with contextlib.ExitStack() as stack:
        database: Database
        if name == "sqlite":
            database = SQLite(stack.enter_context(databases.sqlite()).new_database())
        elif name == "postgresql":
            database = PostgreSQL(stack.enter_context(databases.postgresql(*settings[name])).new_database())
        else:
            database = MariaDB(stack.enter_context(databases.mariadb(*settings[name])).new_database())
        stack.callback(database.engine.dispose)
        yield database
