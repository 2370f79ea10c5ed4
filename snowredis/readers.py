"""Read a table in the order of its ids without missing a row: the watermark of a reader. PostgreSQL 14 or later.

An id is made before its transaction commits, so a reader that remembers the highest id misses rows. Here a trigger (the
fence of core/sql.py) refuses ids older than a lag, and Watermark waits for every transaction that may hold an older id.
It works with SQLAlchemy, Django and DB-API connections, and imports none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import resolve_layout
from snowredis.core.sql import CLOCK_US, FENCE, FENCE_BODY, fence_condition, quoted
from snowredis.errors import ConfigError
from snowredis.process.log import log

__all__ = ["Cursor", "Fence", "Page", "Watermark", "database_session", "fences"]

# pause between two readings of the open transactions
_POLL_S = 0.02
# a condition that all ids fulfil, and that stands in no query. It shows in a plan where ids of tables are compared
_LOWEST = -(2**63) + 1
# tables and those whose rows they show, too: root of the partitions, name, fence, its function, and whether it is a
# table. 5: AFTER INSERT FOR EACH ROW. Partitions that are alike are one row
_FENCES = f"""WITH RECURSIVE part(oid) AS ({{}}
    UNION SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid)
    SELECT coalesce(pg_partition_root(c.oid), c.oid)::bigint AS root, replace(min(c.oid::regclass::text), '"', ''),
    coalesce(pg_get_triggerdef(min(t.oid)), ''), coalesce(prosrc, ''), relkind IN ('r', 'p') AS fit
    FROM part JOIN pg_class c USING (oid) LEFT JOIN (pg_trigger t JOIN pg_proc p ON p.oid = tgfoid)
    ON tgrelid = c.oid AND tgname = '{FENCE}' AND tgtype = 5 AND tgconstraint = 0 AND tgenabled IN ('O', 'A')
    GROUP BY root, tgqual::text, tgargs, tgfoid, prosrc, fit ORDER BY 1, 2"""
# number of a transaction that wrote, why rows of any table could be missed, and the time
_BEGUN = f"""SELECT pg_current_xact_id_if_assigned()::text, CASE WHEN pg_is_in_recovery() THEN
    'this is a replica. Use the primary' WHEN version() !~ '^PostgreSQL [0-9a-z.]+[ ,]'
    THEN version() || ' is not known to work' END, {CLOCK_US}"""
# the lowest number of a transaction that is open
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
# users without the right to see transactions of others get their pid
_OPEN_TRANSACTIONS = """SELECT concat_ws(' ', 'pid', pid, nullif(application_name, ''), 'since ' || xact_start)
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() UNION ALL
    SELECT 'prepared transaction ' || gid || ' since ' || prepared FROM pg_prepared_xacts"""
# texts in a condition, and functions; and those whose result may change although the row does not
_TEXT = re.compile(r"'(?:[^']|'')*'")
_FUNCTION = re.compile(r'(?<!:)\b\w+(?="?\()|\b(?:CURRENT|LOCAL|SESSION)_?[A-Z]+')
_CHANGING = """SELECT name FROM unnest('{{{}}}'::text[]) AS name WHERE name ~ '^(CURRENT|LOCAL|SESSION)'
    OR EXISTS (SELECT FROM pg_proc WHERE proname = name AND provolatile <> 'i')"""
_OWN_CONNECTION = "give an engine, or a connection that nothing else uses, with the isolation level read committed"
_Run: TypeAlias = Callable[[str], list[Any]]


class Cursor(NamedTuple):
    """Place at which a reader goes on.

    Attributes:
        next_id: all rows with lower ids were handled.
        passed_us: microseconds since 1970 by the clock of the server, when the fences were known to keep rows with
            lower ids out. 0: not known.
    """

    next_id: int
    passed_us: int = 0


class Page(list[tuple[Any, ...]]):
    """Rows of a page. Its *cursor* says where the next page begins: store it with what you made of the rows."""

    def __init__(self, rows: Iterable[tuple[Any, ...]], cursor: Cursor) -> None:
        super().__init__(rows)
        self.cursor = cursor


class Fence(NamedTuple):
    """Trigger of a table that refuses old ids, or its absence.

    Attributes:
        root: number of the table in the server; of a partition, the one that is partitioned.
        table: its name.
        problem: why the table may let old ids in; empty if it does not.
        lag_ms: age from which the fence refuses an id.
        lowest: id below which it refuses all ids, whatever their age.
        since_us: microseconds since 1970 when it was made. A fence that replaced another one has the time of that one.
        column, layout: of the ids.
    """

    root: int
    table: str
    problem: str
    lag_ms: int = 0
    lowest: int = 0
    since_us: int = 0
    column: str = ""
    layout: str = ""

    @classmethod
    def shown(cls, root: int, table: str, definition: str, function: str, fit: bool) -> Fence:
        """Return the fence that the server shows at present; the name of a renamed column is another one there."""
        condition, _, called = definition.partition(" WHEN ")[2].rpartition(" EXECUTE FUNCTION ")
        problem = "its fence was changed, or its column was renamed"
        with contextlib.suppress(ValueError):
            lag_ms, column, layout, _, since_us = re.findall(r"'([^']*)'", called)
            lowest = _plain(condition).rpartition(",")[2]
            made = fence_condition("new", resolve_layout(layout), column, int(lag_ms), lowest)
            if fit and _plain(made) == _plain(condition) and function == FENCE_BODY:
                return cls(root, table, "", int(lag_ms), int(lowest), int(since_us), column, layout)
        if not fit:
            return cls(root, table, "it is no table, which is not known to work")
        if not definition:
            problem = "it has no fence, or one that is switched off"
        return cls(root, table, f"{problem}. Run what `snowredis sql postgresql --fence {table}` prints")


def _plain(condition: str) -> str:
    """Return a condition without what the server adds: types and parentheses."""
    return re.sub(r"::(double precision|\w+)|[()\s'\"]", "", condition)


def _first_id(layout: Layout, now_us: int, lag_ms: int) -> int:
    """Return the first id of the time *lag_ms* before *now_us*, as fences compute it."""
    tick = (now_us // 1000 - layout.epoch_ms - lag_ms) // layout.tick_ms
    return min(max(tick, 0), layout.max_tick) << layout.timestamp_shift


class Watermark:
    """Lowest id that may still appear in what one query reads, for readers that go through it in the order of ids.

    Args:
        database: an SQLAlchemy Engine, AsyncEngine or Connection, Django's connection, or a DB-API connection. Nothing
            else uses a connection at the same time: each call begins and ends a transaction of its own.
        layout: of the ids; a Layout, or its name.
        lag: seconds, at least the lag of the fences: how far the mark is behind the clock of the server, at least.
        tables: that you read yourself, below the mark of advance(); or the tables that the query of pages() reads in
            the order of ids, if it joins others: of those it shows what is there when the page is read.
        column: of the ids.
        after: the cursor that an earlier run stored. Or an id, older than the lag, at which to begin.

    Attributes:
        mark: as advance() returned it last.
        passed_us: for a reader that does not use pages(): store it with the mark, and give both as *after*.
        cursor: of the last page that was handled: the next one was asked for.
        behind_ms: age of the mark by the server's clock, as of the last advance().
        waits_for: texts about the open transactions for which the last advance() waited in vain, the oldest first.
            Empty if it did not wait in vain. Of those that the user may not see, the pid.

    One object serves one query, and one thread or one task.
    """

    def __init__(
        self,
        database: Any,
        layout: Layout | str = "default",
        *,
        lag: float = 60.0,
        tables: Sequence[str] = (),
        column: str = "id",
        after: Cursor | Sequence[int] | int = 0,
    ) -> None:
        self.layout, self.lag_ms = resolve_layout(layout), round(lag * 1000)
        # refuses a lag that no fence can have
        fence_condition("new", self.layout, column, self.lag_ms, "0")
        self.cursor = Cursor(after) if isinstance(after, int) else Cursor(*after)
        self.mark, self.passed_us = self.cursor
        self.behind_ms, self.waits_for = 0, list[str]()
        self._database, self._column, self._select = database, column, ""
        self._tables = [quoted("postgresql", table, column) for table in tables]
        # numbers of the tables that are read
        self._roots: set[int] = set()
        # the clock, and the number that all open transactions must have reached
        self._candidate: tuple[int, int] | None = None

    def advance(self, *, wait: float = 10.0) -> int:
        """Return the highest id below which no row can appear any more.

        Args:
            wait: seconds, how long to wait for open transactions; after that, the mark that was reached is returned.

        Raises:
            ConfigError: rows could be missed. A table, a partition or a child table without a fence, or with one that
                is switched off, changed, of another layout or column, newer than the mark, or that lets ids below the
                mark in; other tables than before; a replica; no PostgreSQL; a connection in a transaction that has
                begun; neither *tables* nor a query are known.
            Exception: whatever the database's driver raises.

        Blocks:
            for some round trips, and up to *wait*.
        """
        return self._advance(self._database, time.sleep, wait)

    async def aadvance(self, *, wait: float = 10.0) -> int:
        """Async version of advance(), for an AsyncEngine."""
        from sqlalchemy.util import await_only

        async with self._database.connect() as connection:
            return int(await connection.run_sync(self._advance, lambda s: await_only(asyncio.sleep(s)), wait))

    def pages(self, query: str, *, size: int = 1000, follow: float | None = None) -> Iterator[Page]:
        """Return all rows from the cursor on, in the order of ids, page by page. Not for an AsyncEngine.

        A page counts as handled when the next one is asked for. If your code fails before, the next pages() begins with
        this page again.

        Args:
            query: such as "SELECT id, total FROM orders", without ORDER BY and LIMIT. Rows are tuples. The server says
                which tables it reads.
            size: rows of a page; more if several rows have the last id. A page never ends within an id.
            follow: seconds between two looks at the end of the table; None: stop there.

        Raises:
            As advance(), and ConfigError for another query than before.
        """
        name = f"page.{quoted('postgresql', self._column, self._column)}"
        # a line of its own: the query may end with a comment
        select = f"SELECT {name}, page.* FROM ({query}\n) AS page WHERE {name}"
        if self._select not in ("", select):
            raise ConfigError("this watermark reads another query. Rows could be missed: make a Watermark for each one")
        self._select = select
        while True:
            mark = self.advance()
            while page := self._fetch(mark, max(1, size)):
                yield page
                self.cursor = max(self.cursor, page.cursor)
            self.cursor = max(self.cursor, Cursor(mark, self.passed_us))
            if follow is None:
                return
            time.sleep(follow)

    def _fetch(self, mark: int, size: int) -> Page:
        """Return the next rows below *mark*."""
        with database_session(self._database) as (run, now_us):
            self._check(run, mark, now_us)
            rows = run(f"{self._select} BETWEEN {self.cursor.next_id} AND {mark - 1} ORDER BY 1 LIMIT {size}")
            if len(rows) == size:
                # more rows of the last id may follow
                last = rows[-1][0]
                rows = [row for row in rows if row[0] != last] + run(f"{self._select} = {last}")
        next_id = rows[-1][0] + 1 if rows else mark
        return Page((tuple(row)[1:] for row in rows), Cursor(next_id, self.passed_us))

    def _advance(self, database: Any, pause: Callable[[float], object], wait: float) -> int:
        """Move the mark in a transaction of its own."""
        until = time.monotonic() + wait
        with database_session(database) as (run, now_us):
            if self._candidate is None:
                # A transaction that inserts below the mark already has a number, a lower one than this. The end
                # of a snapshot would not do: it is one above the highest number that has ended, not that was given.
                self._candidate = now_us, int(run("SELECT pg_current_xact_id()::text")[0][0])
            at_us, horizon = self._candidate
            while not (passed := int(run(_OLDEST)[0][0]) >= horizon) and time.monotonic() < until:
                pause(_POLL_S)
            mark = max(self.mark, _first_id(self.layout, at_us, self.lag_ms)) if passed else self.mark
            # after the wait: what ended meanwhile may have changed a fence
            self._check(run, mark, now_us)
            self.waits_for = [] if passed else [row[0] for row in run(_OPEN_TRANSACTIONS)]
        if passed:
            self.mark, self.passed_us, self._candidate = mark, at_us, None
        else:
            log.warning("readers wait for an open transaction: %s", "; ".join(self.waits_for[:3]) or "unknown")
        self.behind_ms = now_us // 1000 - self.layout.ms_at(self.mark >> self.layout.timestamp_shift)
        return self.mark

    def _check(self, run: _Run, mark: int, now_us: int) -> None:
        """Refuse what would miss rows below *mark*."""
        columns = {(table, self._column) for table in self._tables}
        if self._select:
            columns |= self._columns_of_query(run)
        if not columns:
            raise ConfigError("rows could be missed: which tables are read? Name them with tables=")
        roots = set[int]()
        for column in sorted({column for _, column in columns}):
            for fence in fences(run, [table for table, named in columns if named == column]):
                roots.add(fence.root)
                if problem := fence.problem or self._mismatch(fence, column, mark, now_us):
                    raise ConfigError(f"rows of {fence.table} could be missed: {problem}")
        if self._roots not in (set(), roots):
            raise ConfigError("rows could be missed: other tables are read than before. Make another Watermark")
        self._roots = roots

    def _mismatch(self, fence: Fence, column: str, mark: int, now_us: int) -> str:
        """Return why this reader could miss rows behind *fence*, which works as it was made."""
        if (fence.column, fence.layout) != (column, layout_spec(self.layout)):
            return f"its fence is not of the layout {layout_spec(self.layout)} and the column {column}"
        if fence.lag_ms > self.lag_ms:
            return f"its fence has a lag of {fence.lag_ms} ms, the reader one of {self.lag_ms} ms"
        if fence.since_us >= self.passed_us > 0:
            return "its fence was made after the cursor had passed. Begin again below the oldest row since then"
        if max(fence.lowest, _first_id(self.layout, now_us, fence.lag_ms)) < mark:
            return "it lets ids below the mark in: the clock was set back, or the reader begins within the lag"
        return ""

    def _columns_of_query(self, run: _Run) -> set[tuple[str, str]]:
        """Return the tables that the query reads in the order of ids, each with its column of these ids."""
        plan = run(f"EXPLAIN (VERBOSE, FORMAT JSON) {self._select} >= {_LOWEST}")[0][0]
        columns, others, functions = set[tuple[str, str]](), set[str](), set[str]()
        plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        is_ordered = _is_ordered(plan, columns, others, functions)
        if functions:
            others |= {row[0] for row in run(_CHANGING.format(",".join(sorted(functions))))}
        if not is_ordered or (others and not self._tables):
            raise ConfigError(
                f"rows could be missed: the query reads {', '.join(sorted(others))}, but not by the ids of its result. "
                "Without LIMIT, locks and computed ids, name the tables of the ids with tables= if it reads others"
            )
        return columns


def _is_ordered(node: dict[str, Any], columns: set[tuple[str, str]], others: set[str], functions: set[str]) -> bool:
    """Return whether all rows of a node of a plan have the id of a table, which the server compares with _LOWEST.

    Such tables and their columns are added to *columns*, what else the node reads to *others*, and to *functions* those
    that decide which rows it has.
    """
    inner, found, name = [], None, node["Node Type"]
    deciding = [str(text) for key, text in node.items() if key.endswith(("Cond", "Condition", "Filter"))]
    deciding += node["Output"] if name == "ProjectSet" else []
    functions |= {function for text in deciding for function in _FUNCTION.findall(_TEXT.sub("", text))}
    for child in node.get("Plans", ()):
        if child.get("Parent Relationship") in ("InitPlan", "SubPlan"):
            _is_ordered(child, set(), others, functions)
        elif "Relation Name" not in node:
            inner.append(_is_ordered(child, columns, others, functions))
    if name in ("LockRows", "Sample Scan"):
        others.add(name)
        return False
    if inner:
        return any(inner) if "Join Type" in node else all(inner)
    if "Relation Name" in node:
        name = ".".join('"' + node[key].replace('"', '""') + '"' for key in ("Schema", "Relation Name"))
        alias = re.escape(node["Alias"].replace('"', '""'))
        found = re.search(rf"""\("?{alias}"?\.("?)(\w+)\1 >= '{_LOWEST}'::bigint\)""", " ".join(deciding))
    if found:
        columns.add((name, found[2]))
    else:
        others.add(name)
    return found is not None


def fences(run: _Run, tables: Sequence[str]) -> list[Fence]:
    """Return the fences of *tables*, quoted names, and of their parts."""
    chosen = " UNION ".join(f"SELECT $name${table}$name$::regclass::oid" for table in tables)
    return [Fence.shown(*row) for row in run(_FENCES.format(chosen))]


@contextlib.contextmanager
def database_session(database: Any) -> Iterator[tuple[_Run, int]]:
    """Begin a transaction; return a function that runs a statement, and the time of the server. Rolls back.

    Raises:
        ConfigError: a connection in a transaction; a replica; another server than PostgreSQL.
    """
    with contextlib.ExitStack() as stack:
        if hasattr(database, "raw_connection"):  # SQLAlchemy's Engine
            database = stack.enter_context(contextlib.closing(database.raw_connection()))
        elif hasattr(database, "exec_driver_sql"):  # SQLAlchemy's Connection
            if database.in_transaction():
                raise ConfigError(f"a connection in a transaction: {_OWN_CONNECTION}")
            database = database.connection

        def run(statement: str) -> list[Any]:
            with contextlib.closing(database.cursor()) as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []

        # Django connects here
        database.cursor().close()
        try:
            # needed if the driver commits each statement by itself
            run("START TRANSACTION ISOLATION LEVEL READ COMMITTED")
            written, problem, now_us = run(_BEGUN)[0]
        except Exception as error:
            raise ConfigError(f"a connection in a transaction, or no PostgreSQL 14: {_OWN_CONNECTION}") from error
        if written:
            # it stays as it is, with its rows
            raise ConfigError(f"a connection in a transaction: {_OWN_CONNECTION}")
        stack.callback(database.rollback)
        if problem:
            raise ConfigError(f"rows could be missed: {problem}")
        yield run, now_us
