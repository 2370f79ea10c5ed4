"""Read a table in the order of its ids without missing a row: the watermark of a reader.

An id is made before its transaction commits, so a reader that remembers the highest id misses rows. Here a trigger (the
fence of core/sql.py) refuses ids older than a lag, and Watermark waits for every transaction that may hold an older id.
It works with SQLAlchemy, Django and DB-API connections to PostgreSQL and MariaDB, and imports none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import resolve_layout
from snowredis.core.sql import CLOCKS, FENCE, first_writable
from snowredis.errors import ConfigError, shown

__all__ = ["Fence", "Watermark", "database_session", "fences", "server_clock_ms"]

_log = logging.getLogger("snowredis")
# pause between two readings of the open transactions of PostgreSQL
_POLL_S = 0.02
_FENCES = {
    # partitions have copies of the trigger of their table
    "postgresql": "SELECT tgrelid::regclass::text, encode(tgargs, 'escape'), tgenabled::text FROM pg_trigger"
    f" WHERE tgname = '{FENCE}' AND tgparentid = 0 ORDER BY 1",
    "mariadb": "SELECT EVENT_OBJECT_TABLE, ACTION_STATEMENT, 'O' FROM information_schema.TRIGGERS"
    f" WHERE TRIGGER_SCHEMA = DATABASE() AND LEFT(TRIGGER_NAME, {len(FENCE) + 1}) = '{FENCE}_' ORDER BY 1",
}
# 1 where rows can be missed: on a replica, and where SYSDATE() stands still within a statement
_UNFIT = {
    "postgresql": "SELECT pg_is_in_recovery()::int",
    "mariadb": "SELECT @@global.read_only OR SLEEP(0.002) OR SYSDATE(6) = NOW(6)",
}
# users without the right to see other transactions get fewer rows, or an error
_OPEN_TRANSACTIONS = {
    "postgresql": "SELECT 'pid ' || pid || ' ' || coalesce(application_name, '') || ' since ' || xact_start FROM"
    " pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() UNION ALL"
    " SELECT 'prepared transaction ' || gid || ' since ' || prepared FROM pg_prepared_xacts",
    "mariadb": "SELECT CONCAT('thread ', trx_mysql_thread_id, ' since ', trx_started)"
    " FROM information_schema.INNODB_TRX WHERE trx_rows_modified > 0 ORDER BY trx_started",
}
_OWN_CONNECTION = "give an engine, or a connection that nothing else uses, with the isolation level read committed"
_Run: TypeAlias = Callable[[str], list[Any]]


class Fence(NamedTuple):
    """Trigger of a table that refuses old ids.

    Attributes:
        lag_ms: the age from which it refuses an id.
        kind: one of CLOCKS.
        definition: its arguments in PostgreSQL, its body in MariaDB.
        enabled: false if a user switched it off.
    """

    table: str
    lag_ms: int
    kind: str
    definition: str
    enabled: bool

    def problem(self, layout: Layout, lag_ms: int) -> str:
        """Return why a reader of *layout* with a lag of *lag_ms* could miss rows; empty if it cannot."""
        if not self.enabled:
            return "its fence is switched off"
        if self.lag_ms > lag_ms:
            return f"its fence has a lag of {self.lag_ms} ms, the reader one of {lag_ms} ms"
        # PostgreSQL rewrites conditions, and keeps arguments; MariaDB keeps the text of the trigger
        of_layout = layout_spec(layout) if self.kind == "postgresql" else first_writable(self.kind, layout, self.lag_ms)
        return "" if of_layout in self.definition else f"its fence is not of the layout {layout_spec(layout)}"


class Watermark:
    """Lowest id that may still appear in a table, for readers that go through the table in the order of ids.

    Args:
        database: an SQLAlchemy Engine, AsyncEngine or Connection, Django's connection, or a DB-API connection. Nothing
            else uses a connection at the same time: each call begins and ends a transaction of its own.
        layout: of the ids; a Layout, or its name.
        lag: seconds, at least the lag of the fences: how far the mark is behind the clock of the server, at least.
        tables: the tables that are read; none: all tables with a fence. MariaDB shows fences only to a user with the
            right TRIGGER, so other users there name the tables.
        column: of the ids. MariaDB needs an index on it.
        after: the mark that an earlier run stored.

    Attributes:
        mark: as advance() returned it last.
        cursor: all rows below it were returned by pages(). Store it after each page.
        behind_ms: age of the mark by the server's clock, as of the last advance().
        waits_for: texts about the open transactions for which the last advance() waited in vain, the oldest first.
            Empty if it did not wait in vain, or if the user may not see them.

    One object serves one thread, or one task.
    """

    def __init__(
        self,
        database: Any,
        layout: Layout | str = "default",
        *,
        lag: float = 60.0,
        tables: Sequence[str] = (),
        column: str = "id",
        after: int = 0,
    ) -> None:
        if not all(re.fullmatch(r"[A-Za-z0-9_.]{1,128}", name) for name in (*tables, column)):
            raise ConfigError(
                f"{shown(tables)} and {shown(column)} must be names of letters, digits, underscores and dots"
            )
        self.layout = resolve_layout(layout) if isinstance(layout, str) else layout
        self.lag_ms = round(lag * 1000)
        # refuses a lag that no fence can have
        first_writable("postgresql", self.layout, self.lag_ms)
        self.mark = self.cursor = after
        self.behind_ms = 0
        self.waits_for: list[str] = []
        self._database, self._tables, self._column = database, tuple(tables), column
        # PostgreSQL only: a mark, and the number that all open transactions must have reached
        self._candidate: tuple[int, int] | None = None

    def advance(self, *, wait: float = 10.0) -> int:
        """Return the highest id below which no row can appear any more.

        Args:
            wait: seconds, how long to wait for open transactions; after that, the old mark is returned. MariaDB waits
                for whole seconds, at least 1.

        Raises:
            ConfigError: no fence, one that is switched off, of another layout or with a longer lag; a replica; a server
                that is neither PostgreSQL nor MariaDB; a connection in a transaction that has begun.
            Exception: whatever the database's driver raises.

        Blocks:
            for some round trips, and up to *wait*.
        """
        return self._advance(self._database, time.sleep, wait)

    async def aadvance(self, *, wait: float = 10.0) -> int:
        """Async version of advance(), for an AsyncEngine."""
        from sqlalchemy.util import await_only

        def pause(seconds: float) -> None:
            await_only(asyncio.sleep(seconds))

        async with self._database.connect() as connection:
            return int(await connection.run_sync(self._advance, pause, wait))

    def pages(self, query: str, *, size: int = 1000, follow: float | None = None) -> Iterator[Sequence[Any]]:
        """Return all rows from the cursor on, in the order of ids, page by page. Not for an AsyncEngine.

        Args:
            query: such as "SELECT id, total FROM orders", without ORDER BY and LIMIT. Rows are tuples.
            size: rows of a page, at most.
            follow: seconds between two looks at the end of the table; None: stop there.
        """
        while True:
            mark = self.advance()
            while page := self._fetch(query, mark, size):
                yield page
            self.cursor = max(self.cursor, mark)
            if follow is None:
                return
            time.sleep(follow)

    def _fetch(self, query: str, mark: int, size: int) -> list[Any]:
        """Return the next rows of *query* below *mark*, and move the cursor past them."""
        text = (
            f"SELECT page.{self._column}, page.* FROM ({query}) AS page WHERE page.{self._column} >= {self.cursor}"
            f" AND page.{self._column} < {mark} ORDER BY 1 LIMIT {size}"
        )
        with database_session(self._database) as (run, _):
            rows = [tuple(row) for row in run(text)]
        if rows:
            self.cursor = rows[-1][0] + 1
        return [row[1:] for row in rows]

    def _advance(self, database: Any, pause: Callable[[float], object], wait: float) -> int:
        with database_session(database) as (run, kind):
            self._check(run, kind)
            bound = first_writable(kind, self.layout, self.lag_ms)
            before = self.mark
            move = self._past_snapshots if kind == "postgresql" else self._past_locks
            if moved := move(run, bound, pause, wait):
                self.mark = max(before, moved)
            self.waits_for = [] if moved else _open_transactions(run, kind)
            newest = run(f"SELECT {bound}")[0][0]
        self.behind_ms = self.layout.ms_at(newest >> self.layout.timestamp_shift) + self.lag_ms
        self.behind_ms -= self.layout.ms_at(self.mark >> self.layout.timestamp_shift)
        if not moved:
            _log.warning(
                "readers wait for a transaction that is still open: %s", "; ".join(self.waits_for[:3]) or "unknown"
            )
        return self.mark

    def _past_snapshots(self, run: _Run, bound: str, pause: Callable[[float], object], wait: float) -> int:
        """Return a mark that all transactions of PostgreSQL that may write below it have passed; 0: some have not."""
        until = time.monotonic() + wait
        if self._candidate is None:
            mark = run(f"SELECT {bound}")[0][0]
            # A transaction that inserts below the mark already has a number, a lower one than this. The end
            # of a snapshot would not do: it is one above the highest number that has ended, not that was given.
            self._candidate = int(mark), int(run("SELECT pg_current_xact_id()::text")[0][0])
        mark, horizon = self._candidate
        while int(run("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")[0][0]) < horizon:
            if time.monotonic() >= until:
                return 0
            pause(_POLL_S)
        self._candidate = None
        return mark

    def _past_locks(self, run: _Run, bound: str, pause: Callable[[float], object], wait: float) -> int:
        """Return a mark below which MariaDB has no row of an open transaction; 0: it has some."""
        mark = int(run(f"SELECT {bound}")[0][0])
        before = run("SELECT @@innodb_lock_wait_timeout")[0][0]
        run(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(wait))}")
        try:
            for table in self._tables or [fence.table for fence in self._fences]:
                rows = f"{table} WHERE {self._column} >= {self.mark} AND {self._column} < {mark}"
                # a locking read waits for each row that is not committed
                run(f"SELECT COUNT(*) FROM {rows} LOCK IN SHARE MODE")
        except Exception as error:
            # 1205: lock wait timeout exceeded
            if error.args[:1] != (1205,):
                raise
            return 0
        finally:
            run(f"SET SESSION innodb_lock_wait_timeout = {before}")
        return mark

    def _check(self, run: _Run, kind: str) -> None:
        """Refuse what would miss rows."""
        if run(_UNFIT[kind])[0][0]:
            raise ConfigError(
                "rows could be missed: this server is a replica, or its SYSDATE() is NOW(). Use the primary"
            )
        if kind == "postgresql":
            text = "SELECT current_setting('transaction_isolation'), pg_current_xact_id_if_assigned() IS NOT NULL"
            isolation, wrote = run(text)[0]
            if isolation != "read committed" or wrote:
                raise ConfigError(
                    f"a transaction with {isolation}{' that wrote rows' if wrote else ''}: {_OWN_CONNECTION}"
                )
        self._fences = [fence for fence in fences(run, kind) if not self._tables or fence.table in self._tables]
        seen = {fence.table for fence in self._fences}
        missing = [table for table in self._tables if table not in seen]
        # a user of MariaDB without the right TRIGGER sees none
        hidden = kind == "mariadb" and not seen and bool(self._tables)
        if not hidden and (missing or not seen):
            raise ConfigError(
                f"rows could be missed: no fence can be seen on {', '.join(missing) or 'any table'}. Run what "
                f"`snowredis sql {kind} --fence TABLE` prints"
            )
        for fence in self._fences:
            if problem := fence.problem(self.layout, self.lag_ms):
                raise ConfigError(f"rows of {fence.table} could be missed: {problem}")


def fences(run: _Run, kind: str) -> list[Fence]:
    """Return the fences that the user of a database may see. *kind* is one of CLOCKS."""
    found = []
    for table, definition, enabled in run(_FENCES[kind]):
        lag = re.search(r"\d+(?= ms|\\000)", definition)
        found.append(Fence(table.replace('"', ""), int(lag[0]) if lag else 0, kind, definition, enabled in "OA"))
    return found


def server_clock_ms(run: _Run, kind: str) -> int:
    """Return the clock that fences read: ms since 1970."""
    return int(run(f"SELECT {CLOCKS[kind]}")[0][0])


@contextlib.contextmanager
def database_session(database: Any) -> Iterator[tuple[_Run, str]]:
    """Begin a transaction; return a function that runs a statement, and which of CLOCKS the server is. Rolls back.

    Raises:
        ConfigError: a connection in a transaction; another server.
    """
    with _connected(database) as connection, _transaction(connection) as run:
        yield run, _kind(run)


@contextlib.contextmanager
def _connected(database: Any) -> Iterator[Any]:
    """Return the DB-API connection of what a user gave."""
    if hasattr(database, "raw_connection"):  # SQLAlchemy's Engine
        with contextlib.closing(database.raw_connection()) as connection:
            yield connection
    elif hasattr(database, "exec_driver_sql"):  # SQLAlchemy's Connection
        if database.in_transaction():
            raise ConfigError(f"a connection in a transaction: {_OWN_CONNECTION}")
        yield database.connection
    else:
        yield database


@contextlib.contextmanager
def _transaction(connection: Any) -> Iterator[_Run]:
    """Run statements in a transaction that is rolled back."""

    def run(statement: str) -> list[Any]:
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    # Django connects here
    connection.cursor().close()
    try:
        # MariaDB wants it before a transaction. PostgreSQL ignores it there, and a check of its own follows
        run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except Exception as error:
        raise ConfigError(f"a connection in a transaction, or no PostgreSQL or MariaDB: {_OWN_CONNECTION}") from error
    try:
        # needed if the driver commits each statement by itself
        run("START TRANSACTION")
        yield run
    finally:
        connection.rollback()


def _kind(run: _Run) -> str:
    version = str(run("SELECT version()")[0][0])
    return "postgresql" if version.startswith("PostgreSQL") else "mariadb"


def _open_transactions(run: _Run, kind: str) -> list[str]:
    try:
        return [row[0] for row in run(_OPEN_TRANSACTIONS[kind])]
    except Exception:  # noqa: BLE001 - the drivers' errors have no common class, and only a text for people is lost
        return []
