"""A temporary DuckDB database under a bound of memory, and the ids of a merge in it.

What a statement spills to the disk is in `spill/` inside its directory. DuckDB looks at signals while a statement
runs: within 1 to 4 s, measured. IdStore has the ids of both databases by domain: which clash, what is free, and a proof
that new ones do not clash.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import duckdb
import numpy as np
import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, shown
from snowredis.merge import MergeError
from snowredis.merge.plan_file import Pair
from snowredis.merge.schema import Domain, Partial, Schema

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# DuckDB exceeds its limit by what its allocator keeps: 20 % measured; arrays of numpy have the rest
_DUCKDB_PERCENT = 40
# memory for each id that is sorted at once: 21 measured
_BYTES_PER_ID = 32
# memory of a plan
_MEMORY = 2 << 30


class Workspace:
    """A context manager that removes its files.

    Args:
        memory_bytes: what the whole process may take at its peak.

    Attributes:
        directory: where they are.
        duckdb_bytes: limit of DuckDB's own accounting.
        ids_at_once: how many ids fit the memory while they are sorted.

    Raises:
        ConfigError: too little memory.
    """

    def __init__(self, memory_bytes: int = _MEMORY) -> None:
        if memory_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{memory_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        free_bytes = memory_bytes - _IDLE_BYTES
        self.duckdb_bytes = free_bytes * _DUCKDB_PERCENT // 100
        self.ids_at_once = free_bytes // _BYTES_PER_ID
        self._files = tempfile.TemporaryDirectory(prefix="snowredis-merge-", ignore_cleanup_errors=True)
        self.directory = Path(self._files.name)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.duckdb_bytes // MIB}MiB",
            "temp_directory": str(self.directory / "spill"),
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        self._connection = duckdb.connect(str(self.directory / "ids.duckdb"), config=settings)
        # DuckDB would print it among the lines of the report; it is a setting of the connection
        with _statement():
            self._connection.execute("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._files.cleanup()

    # --- statements ------------------------------------------------------------------------------------

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result.

        Raises:
            KeyboardInterrupt: a signal handler raised any exception while the statement ran.
        """
        with _statement():
            return self._connection.execute(sql, values or None).fetchall()

    def column(self, sql: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the only column of a query of whole numbers, none of which is NULL, as an array."""
        with _statement():
            (values,) = self._connection.execute(sql).fetchnumpy().values()
            return values

    def insert(self, table: str, columns: str, arrays: Mapping[str, Any]) -> None:
        """Insert arrays of numpy as rows: *columns* are expressions over their names."""
        self._connection.register("given", arrays)
        try:
            self.rows(f"INSERT INTO {table} SELECT {columns} FROM given")
        finally:
            self._connection.unregister("given")


@contextlib.contextmanager
def _statement() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # DuckDB raises an error of its own in place of what the handler raised: also while it fetches rows
        raise KeyboardInterrupt from error


# --- the ids of a merge ------------------------------------------------------------------------------------

_PAGE = 100_000
# ids of every layout are above this after its first hour or so; numbers of counters, and amounts, are below
LARGE = 1 << 32
_TABLES = """
CREATE OR REPLACE TABLE page (id BIGINT);
CREATE OR REPLACE TABLE kept (domain INTEGER, id BIGINT);
CREATE OR REPLACE TABLE changed (domain INTEGER, id BIGINT);
CREATE OR REPLACE TABLE mapping (domain INTEGER, old BIGINT, via BIGINT, new BIGINT);
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """Ids of one domain in both databases.

    Attributes:
        number: of the domain.
        kept, changed: how many ids each side has.
        clashes: how many both have.
        lowest, changed_highest: of the side that changes; highest: of both.
    """

    number: int
    kept: int
    changed: int
    clashes: int
    lowest: int
    changed_highest: int
    highest: int


class IdStore:
    """Tables in a workspace: ``kept`` and ``changed`` (domain, id), and ``mapping`` (domain, old, via, new)."""

    def __init__(self, workspace: Workspace) -> None:
        self.rows, self.insert = workspace.rows, workspace.insert
        self.rows(_TABLES)

    def load(
        self,
        side: Literal["kept", "changed"],
        number: int,
        connection: sa.Connection,
        schema: Schema,
        domain: Domain,
        partials: Iterable[Partial],
    ) -> None:
        """Read the ids that the key columns of *domain* hold, and those that *partials* hold, also of no row.

        Raises:
            MergeError: a value is no whole number of 64 bits with a sign.
        """
        for name in domain.keys:
            for text in _pages(connection, schema.column(name)):
                values = "(SELECT unnest(string_split(?, ',')) AS value)"
                wrong = f"SELECT value FROM {values} WHERE try_cast(value AS BIGINT)::VARCHAR IS DISTINCT FROM value"
                for (value,) in self.rows(f"{wrong} LIMIT 1", text):
                    raise MergeError(
                        f"{name} has the value {shown(value)}, which is no whole number below 2**63. Nothing was "
                        "changed; such ids cannot be merged: correct them, or --exclude the table."
                    )
                self.rows(f"INSERT INTO page SELECT value::BIGINT FROM {values}", text)
        (highest,) = self.rows("SELECT max(id) FROM page")[0]
        for part in partials:
            table = schema.tables[part.column.table_name]
            query = sa.select(schema.column(part.column)).where(part.applies(table.c))
            found = connection.scalars(query.distinct())
            ids = [int(str(value)) for value in found if re.fullmatch(r"[0-9]{1,18}", str(value))]
            if (highest or 0) < LARGE:
                # a greater number was never one of this counter's
                ids = [an_id for an_id in ids if an_id < LARGE]
            self.insert("page", "id", {"id": np.array(ids, dtype=np.int64)})
        self.rows(f"INSERT INTO {side} SELECT DISTINCT {number}, id FROM page")
        self.rows("DELETE FROM page")

    def scan(self, number: int) -> Scan:
        """Compare the ids of both sides."""
        kept_ids, changed_ids = (f"id FROM {side} WHERE domain = {number}" for side in ("kept", "changed"))
        both = f"(SELECT 1 AS side, {kept_ids} UNION ALL SELECT 2, {changed_ids})"
        kept, changed, lowest, changed_highest, highest = self.rows(
            "SELECT count(*) FILTER (side = 1), count(*) FILTER (side = 2), min(id) FILTER (side = 2), "
            f"max(id) FILTER (side = 2), max(id) FROM {both}"
        )[0]
        (clashes,) = self.rows(f"SELECT count(*) FROM ({self._clashes(number)})")[0]
        return Scan(number, kept, changed, clashes, lowest or 0, changed_highest or 0, highest or 0)

    def lanes(self, layout: Layout) -> set[int]:
        """Return the lanes of all ids of both sides that can be of *layout*."""
        ids = "(SELECT id FROM kept UNION ALL SELECT id FROM changed)"
        query = (
            f"SELECT DISTINCT id & {lane_mask(layout)} FROM {ids} WHERE id BETWEEN 0 AND {(1 << layout.total_bits) - 1}"
        )
        return {lane for (lane,) in self.rows(query)}

    def _clashes(self, number: int) -> str:
        return f"SELECT id FROM changed SEMI JOIN kept USING (domain, id) WHERE domain = {number}"

    def clashes(self, number: int) -> list[int]:
        """Return the ids that both sides have, sorted."""
        return [an_id for (an_id,) in self.rows(f"{self._clashes(number)} ORDER BY id")]

    def ids(self, side: str, number: int) -> list[int]:
        """Return the ids of one side, sorted."""
        return [an_id for (an_id,) in self.rows(f"SELECT id FROM {side} WHERE domain = {number} ORDER BY id")]

    def domains_of(self, side: str, values: Iterable[int], domains: Iterable[int]) -> dict[int, set[int]]:
        """Return which of *values* are ids of each of these domains that has some, on one side."""
        self.insert("page", "id", {"id": np.array(list(values), dtype=np.int64)})
        listed = ", ".join(map(str, [0, *domains]))
        found: dict[int, set[int]] = {}
        for domain, an_id in self.rows(
            f"SELECT domain, id FROM {side} SEMI JOIN page USING (id) WHERE domain IN ({listed})"
        ):
            found.setdefault(domain, set()).add(an_id)
        self.rows("DELETE FROM page")
        return found

    # --- new ids ---------------------------------------------------------------------------------------

    def add_offset(self, number: int, offset: int) -> None:
        """Give every id of the side that changes a new one, *offset* above it."""
        self.rows(
            f"INSERT INTO mapping SELECT domain, id, id + {offset}, id + {offset} FROM changed WHERE domain = {number}"
        )

    def add(self, number: int, pairs: Iterable[Pair]) -> None:
        """Store pairs of old and new ids."""
        iterator = iter(pairs)
        while page := list(islice(iterator, _PAGE)):
            values = np.array(page, dtype=np.int64)
            arrays: dict[str, Any] = {"old": values[:, 0], "via": values[:, 1], "new": values[:, 2]}
            self.insert("mapping", f"{number}, old, via, new", arrays)

    def pairs(self, number: int) -> Iterator[Pair]:
        """Yield the pairs in the order of the old ids."""
        after = -(1 << 63)
        while page := self.rows(
            f"SELECT old, via, new FROM mapping WHERE domain = {number} AND old > ? ORDER BY old LIMIT {_PAGE}", after
        ):
            yield from map(tuple, page)
            after = page[-1][0]

    def prove(self, number: int, name: str, *, matched: bool) -> None:
        """Check, against both databases, that no id of a domain is there twice after the change.

        Args:
            matched: new ids of rows that both databases have are ids of the other database on purpose.

        Raises:
            MergeError: an id clashes, or an old one does not exist (any more).
        """
        mine = f"(SELECT * FROM mapping WHERE domain = {number})"
        kept_ids, changed_ids = (f"(SELECT id FROM {side} WHERE domain = {number})" for side in ("kept", "changed"))
        after = f"(SELECT coalesce(m.new, c.id) AS id FROM {changed_ids} c LEFT JOIN {mine} m ON m.old = c.id)"
        checks = {
            "is to get a new id, and does not exist any more": f"SELECT old FROM {mine} WHERE old NOT IN {changed_ids}",
            "is there twice after the change": f"SELECT id FROM {after} GROUP BY id HAVING count(*) > 1",
            "is a temporary id of the plan, and is in use": f"SELECT via FROM {mine} WHERE via <> new AND (via IN "
            f"{kept_ids} OR via IN {changed_ids} OR via IN (SELECT new FROM {mine}))",
        }
        if not matched:
            checks["is a new id of the plan, and is in use"] = (
                f"SELECT new FROM {mine} WHERE new IN {kept_ids} OR new IN {changed_ids}"
            )
            checks["is in both databases, and not in the plan"] = (
                f"SELECT id FROM {changed_ids} WHERE id IN {kept_ids} AND id NOT IN (SELECT old FROM {mine})"
            )
        for what, query in checks.items():
            if found := self.rows(f"SELECT * FROM ({query}) LIMIT 1"):
                raise MergeError(
                    f"{name}: {found[0][0]} {what}. Nothing was changed; the databases are not as they were when the "
                    "plan was made: stop what writes to them, and make a new plan."
                )


def _pages(connection: sa.Connection, column: sa.Column[Any]) -> Iterator[str]:
    """Yield the ids in a column, each once and with commas in between: a tenth of the time of a row for each."""
    last = None
    while True:
        ids = sa.select(column.label("id")).where(column.is_not(None) if last is None else column > last)
        page = ids.distinct().order_by(column).limit(_PAGE).subquery()
        text = sa.func.aggregate_strings(sa.cast(page.c.id, sa.Text), ",")
        last, count, found = connection.execute(sa.select(sa.func.max(page.c.id), sa.func.count(), text)).one()
        if not count:
            return
        if found.count(",") + 1 != count:
            raise MergeError(f"the database shortens the list of the ids in {column}. Nothing was changed.")
        yield found


def lane_mask(layout: Layout) -> int:
    """Return the bits of an id that say its lane. A lane is written as the id that has only these."""
    highest = {"datacenter": layout.datacenters - 1, "backup": layout.namespaces - 1, "worker": layout.workers - 1}
    return layout.compose(tick=0, **highest)
