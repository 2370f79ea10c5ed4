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
from typing import Any, Literal, NamedTuple, TypeAlias

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import resolve_layout
from snowredis.core.sql import FENCE, first_writable
from snowredis.errors import ConfigError, shown

__all__ = ["Fence", "Watermark", "database_session", "fences", "unfit"]

_log = logging.getLogger("snowredis")
# pause between two readings of the open transactions of PostgreSQL
_POLL_S = 0.02
# rows of a table below this many are locked at once by a reader of MariaDB: about 20 ms
_STEP_ROWS = 10_000
# a query of tables and of those whose rows they show, too: table, part, fence, and why it is not known to work; then
# the condition that chooses all tables with a fence, and the condition that chooses one table
_FENCES = {
    # 5: AFTER INSERT FOR EACH ROW. Parts that are alike are one row
    "postgresql": (
        f"""WITH RECURSIVE part(top, oid) AS (SELECT oid, oid FROM pg_class WHERE {{}}
        UNION SELECT top, inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid)
        SELECT replace(top::regclass::text, '"', ''), replace(min(c.oid::regclass::text), '"', ''),
        coalesce(encode(tgargs, 'escape'), ''), CASE WHEN relkind IN ('r', 'p') THEN '' ELSE 'no table' END AS unfit
        FROM part JOIN pg_class c USING (oid) LEFT JOIN pg_trigger
        ON tgrelid = c.oid AND tgname = '{FENCE}' AND tgtype = 5 AND tgenabled IN ('O', 'A')
        GROUP BY top, tgargs, unfit ORDER BY 1, 2""",
        f"oid IN (SELECT tgrelid FROM pg_trigger WHERE tgname = '{FENCE}' AND tgparentid = 0)",
        """oid = to_regclass('"{}"')""",
    ),
    "mariadb": (
        f"""SELECT TABLE_NAME, TABLE_NAME, COALESCE(ACTION_STATEMENT, ''), IF(TABLE_TYPE = 'BASE TABLE'
        AND ENGINE = 'InnoDB', '', CONCAT(TABLE_TYPE, ' ', COALESCE(ENGINE, ''), ', not BASE TABLE InnoDB'))
        FROM information_schema.TABLES LEFT JOIN information_schema.TRIGGERS
        ON TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = TABLE_NAME AND EVENT_MANIPULATION = 'INSERT'
        AND ACTION_TIMING = 'AFTER' AND TRIGGER_NAME = CONCAT('{FENCE}_', TABLE_NAME)
        WHERE TABLE_SCHEMA = DATABASE() AND ({{}}) ORDER BY 1""",
        "TRIGGER_NAME IS NOT NULL",
        "TABLE_NAME = '{}'",
    ),
}
_HIDDEN = {"postgresql": "", "mariadb": ". If it is there, grant this user the right TRIGGER, or say fence='trusted'"}
# why rows of any table could be missed, or nothing. SYSDATE() of MariaDB may stand still within a statement
_UNFIT = {
    "postgresql": """SELECT CASE WHEN pg_is_in_recovery() THEN 'this is a replica. Use the primary' WHEN
    current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL
    THEN 'a transaction with ' || current_setting('transaction_isolation') || ', or one that wrote rows: {}' END""",
    "mariadb": """SELECT CASE WHEN @@global.read_only THEN 'this is a replica. Use the primary'
    WHEN SLEEP(0.002) OR SYSDATE(6) = NOW(6) THEN 'SYSDATE() is NOW(). Start the server without this option' END""",
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
    """Trigger of a table that refuses old ids, or its absence.

    Attributes:
        kind: one of CLOCKS.
        table: the table that a reader names.
        part: the table itself, or a partition or a child table, whose rows the table shows, too.
        definition: arguments of the trigger in PostgreSQL, its body in MariaDB. Empty if there is none, if it is
            switched off, or if the user may not see it.
        unfit: why the part is not known to work; empty if it is.
    """

    kind: str
    table: str
    part: str
    definition: str
    unfit: str

    @property
    def lag_ms(self) -> int:
        """Age from which it refuses an id."""
        lag = re.search(r"\d+(?= ms|\\000)", self.definition)
        return int(lag[0]) if lag else 1

    def problem(self, trusted: bool = False) -> str:
        """Return why readers of any layout could miss rows. *trusted*: there is a fence if MariaDB does not show it."""
        if self.unfit or self.definition or (trusted and self.kind == "mariadb"):
            return self.unfit and f"it is {self.unfit}, which is not known to work"
        create = f"Run what `snowredis sql {self.kind} --fence {self.part}` prints"
        return f"it has no fence, or one that is switched off. {create}{_HIDDEN[self.kind]}"

    def mismatch(self, layout: Layout, lag_ms: int, column: str) -> str:
        """Return why a reader of *layout* with a lag of *lag_ms* could miss rows; empty if it cannot."""
        if self.lag_ms > lag_ms:
            return f"its fence has a lag of {self.lag_ms} ms, the reader one of {lag_ms} ms"
        # PostgreSQL rewrites conditions, and keeps arguments; MariaDB keeps the text of the trigger
        expected = f"\\000{column}\\000{layout_spec(layout)}\\000"
        if self.kind == "mariadb":
            expected = f"NEW.`{column}` < {first_writable(self.kind, layout, self.lag_ms)}"
        fits = not self.definition or expected in self.definition
        return "" if fits else f"its fence is not of the layout {layout_spec(layout)} and the column {column}"


class Watermark:
    """Lowest id that may still appear in a table, for readers that go through the table in the order of ids.

    Args:
        database: an SQLAlchemy Engine, AsyncEngine or Connection, Django's connection, or a DB-API connection. Nothing
            else uses a connection at the same time: each call begins and ends a transaction of its own.
        layout: of the ids; a Layout, or its name.
        lag: seconds, at least the lag of the fences: how far the mark is behind the clock of the server, at least.
        tables: the tables that are read; none: all tables with a fence.
        fence: "trusted" if the user of MariaDB has no right to see the fences of *tables*, the right TRIGGER, and you
            know that they are there.
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
        fence: Literal["checked", "trusted"] = "checked",
        column: str = "id",
        after: int = 0,
    ) -> None:
        if fence not in ("checked", "trusted") or (fence == "trusted" and not tables):
            raise ConfigError("fence must be 'checked', or 'trusted' with the names of the tables")
        if not all(re.fullmatch(r"[A-Za-z0-9_.]{1,128}", name) for name in (*tables, column)):
            raise ConfigError(f"{shown(tables)} and {shown(column)} must be names of letters, digits, _ and dots")
        self.layout = resolve_layout(layout) if isinstance(layout, str) else layout
        self.lag_ms = round(lag * 1000)
        # refuses a lag that no fence can have
        first_writable("postgresql", self.layout, self.lag_ms)
        self.mark = self.cursor = after
        self.behind_ms = 0
        self.waits_for: list[str] = []
        self._database, self._tables, self._column = database, tuple(tables), column
        self._trusted, self._covered = fence == "trusted", list(tables)
        # MariaDB only: new rows are left to look at
        self._more = False
        # PostgreSQL only: a mark, and the number that all open transactions must have reached
        self._candidate: tuple[int, int] | None = None

    def advance(self, *, wait: float = 10.0) -> int:
        """Return the highest id below which no row can appear any more.

        Args:
            wait: seconds, how long to wait for open transactions, and how long to look at new rows of MariaDB; after
                that, the mark that was reached is returned. MariaDB waits for whole seconds, at least 1.

        Raises:
            ConfigError: a table, a partition or a child table without a fence, or with one that is switched off, of
                another layout or column, or with a longer lag; an engine other than InnoDB; a replica; a server that is
                neither PostgreSQL nor MariaDB; a connection in a transaction that has begun.
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
            query: such as "SELECT id, total FROM orders", without ORDER BY and LIMIT. Rows are tuples. Without
                *tables*, it names a table with a fence.
            size: rows of a page; more if several rows have the last id. A page never ends within an id.
            follow: seconds between two looks at the end of the table; None: stop there.

        Raises:
            As advance().
        """
        while True:
            mark = self.advance()
            if not self._tables and not any(re.search(rf"\b{re.escape(table)}\b", query) for table in self._covered):
                raise ConfigError("rows could be missed: the query names no table with a fence. Name it with tables=")
            while page := self._fetch(query, mark, size):
                yield page
            self.cursor = max(self.cursor, mark)
            if not self._more:
                if follow is None:
                    return
                time.sleep(follow)

    def _fetch(self, query: str, mark: int, size: int) -> list[Any]:
        """Return the next rows of *query* below *mark*, and move the cursor past them."""
        text = f"SELECT page.{self._column}, page.* FROM ({query}) AS page WHERE page.{self._column}"
        with database_session(self._database) as (run, _):
            rows = run(f"{text} BETWEEN {self.cursor} AND {mark - 1} ORDER BY 1 LIMIT {size}")
            if len(rows) == size:
                # more rows of the last id may follow
                last = rows[-1][0]
                rows = [row for row in rows if row[0] != last] + run(f"{text} = {last}")
        if rows:
            self.cursor = rows[-1][0] + 1
        return [tuple(row)[1:] for row in rows]

    def _advance(self, database: Any, pause: Callable[[float], object], wait: float) -> int:
        until = time.monotonic() + wait
        while self._step(database, pause, until) and time.monotonic() < until:
            pass
        return self.mark

    def _step(self, database: Any, pause: Callable[[float], object], until: float) -> bool:
        """Move the mark in a transaction of its own; return whether rows are left to look at."""
        with database_session(database) as (run, kind):
            self._check(run, kind)
            bound = first_writable(kind, self.layout, self.lag_ms)
            move = self._past_snapshots if kind == "postgresql" else self._past_locks
            if moved := move(run, bound, pause, until):
                self.mark = max(self.mark, moved)
            self.waits_for = [] if moved else _open_transactions(run, kind)
            newest = run(f"SELECT {bound}")[0][0]
        self.behind_ms = self.layout.ms_at(newest >> self.layout.timestamp_shift) + self.lag_ms
        self.behind_ms -= self.layout.ms_at(self.mark >> self.layout.timestamp_shift)
        if not moved:
            _log.warning("readers wait for an open transaction: %s", "; ".join(self.waits_for[:3]) or "unknown")
        return self._more

    def _past_snapshots(self, run: _Run, bound: str, pause: Callable[[float], object], until: float) -> int:
        """Return a mark that all transactions of PostgreSQL that may write below it have passed; 0: some have not."""
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

    def _past_locks(self, run: _Run, bound: str, pause: Callable[[float], object], until: float) -> int:
        """Return a mark below which MariaDB has no row of an open transaction; 0: it has some."""
        clock = mark = int(run(f"SELECT {bound}")[0][0])
        for table in self._covered:
            later = f"FROM `{table}` WHERE {self._column} > {self.mark} ORDER BY 1 LIMIT 1 OFFSET {_STEP_ROWS}"
            mark = min([mark, *(row[0] for row in run(f"SELECT {self._column} {later}"))])
        self._more = False
        before = run("SELECT @@innodb_lock_wait_timeout")[0][0]
        run(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(until - time.monotonic()))}")
        try:
            for table in self._covered:
                rows = f"`{table}` WHERE {self._column} >= {self.mark} AND {self._column} < {mark}"
                # a locking read waits for each row that is not committed
                run(f"SELECT COUNT(*) FROM {rows} LOCK IN SHARE MODE")
        except Exception as error:
            # 1205: lock wait timeout exceeded
            if error.args[:1] != (1205,):
                raise
            return 0
        finally:
            run(f"SET SESSION innodb_lock_wait_timeout = {before}")
        self._more = mark < clock
        return mark

    def _check(self, run: _Run, kind: str) -> None:
        """Refuse what would miss rows."""
        if problem := unfit(run, kind):
            raise ConfigError(f"rows could be missed: {problem}")
        found = fences(run, kind, self._tables)
        self._covered = sorted({fence.table for fence in found})
        if len(self._covered) < max(1, len(set(self._tables))):
            names = " and ".join(self._tables) or "any table"
            create = f"Run what `snowredis sql {kind} --fence TABLE` prints"
            raise ConfigError(f"rows could be missed: no table with a fence can be seen: {names}. {create}")
        for fence in found:
            if problem := fence.problem(self._trusted) or fence.mismatch(self.layout, self.lag_ms, self._column):
                raise ConfigError(f"rows of {fence.part} could be missed: {problem}")


def unfit(run: _Run, kind: str) -> str:
    """Return why readers could miss rows of any table; empty if they cannot."""
    if kind == "mariadb" and run("SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'"):
        return "this is a node of Galera, which does not wait for the transactions of other nodes"
    return run(_UNFIT[kind].format(_OWN_CONNECTION))[0][0] or ""


def fences(run: _Run, kind: str, tables: Sequence[str] = ()) -> list[Fence]:
    """Return the fences of *tables* and of their parts, or of all tables with a fence. *kind* is one of CLOCKS."""
    query, every, one = _FENCES[kind]
    chosen = " OR ".join(one.format(table.replace(".", '"."')) for table in tables)
    return [Fence(kind, *row) for row in run(query.format(chosen or every))]


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
