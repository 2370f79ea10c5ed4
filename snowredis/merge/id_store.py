"""The ids of both databases by domain, in DuckDB: which clash, what is free, and a proof that new ones do not clash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.databases import stream
from snowredis.merge.new_ids import lane_mask
from snowredis.merge.plan_file import Pair
from snowredis.merge.schema import Domain, Schema
from snowredis.merge.workspace import Workspace

__all__ = ["IdStore", "Scan"]

_PAGE = 100_000
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
        kept, changed: how many ids each side has.
        clashes: how many both have.
        lowest, changed_highest: of the side that changes; highest: of both.
        lanes: that either side uses, if there is a layout.
        unfit: how many ids are negative or have more bits than the layout.
    """

    kept: int
    changed: int
    clashes: int
    lowest: int
    changed_highest: int
    highest: int
    lanes: frozenset[int]
    unfit: int


class IdStore:
    """Tables in a workspace: ``kept`` and ``changed`` (domain, id), and ``mapping`` (domain, old, via, new)."""

    def __init__(self, workspace: Workspace) -> None:
        self.rows, self.insert = workspace.rows, workspace.insert
        self.rows(_TABLES)

    def load(
        self, side: Literal["kept", "changed"], number: int, connection: sa.Connection, schema: Schema, domain: Domain
    ) -> None:
        """Read the ids that the key columns of *domain* hold, and those of its partial references, also of no row.

        Raises:
            MergeError: a value is no whole number of 64 bits with a sign.
        """
        for part in domain.partials:
            table = schema.tables[part.column.of]
            of_kind = sa.cast(table.c[part.kind], sa.String(200)) == part.value
            found = connection.scalars(sa.select(schema.column(part.column)).where(of_kind).distinct())
            ids = [int(str(value)) for value in found if re.fullmatch(r"[0-9]{1,18}", str(value))]
            self.insert("page", "id", {"id": np.array(ids, dtype=np.int64)})
        for name in domain.keys:
            if name.of not in schema.tables or name.column not in schema.tables[name.of].c:
                continue
            column = sa.type_coerce(schema.column(name), sa.types.NULLTYPE)
            values = stream(connection, sa.select(column).where(column.is_not(None)))
            while page := [value for (value,) in islice(values, _PAGE)]:
                try:
                    wrong = next((value for value in page if type(value) is not int), None)
                    array = np.array(page, dtype=np.int64) if wrong is None else None
                except OverflowError:
                    wrong, array = max(page), None
                if array is None:
                    raise MergeError(
                        f"{name} has the value {shown(wrong)}, which is no whole number below 2**63. Nothing was "
                        "changed; such ids cannot be merged: correct them, or --exclude the table."
                    )
                self.insert("page", "id", {"id": array})
        self.rows(f"INSERT INTO {side} SELECT DISTINCT {number}, id FROM page")
        self.rows("DELETE FROM page")

    def scan(self, number: int, layout: Layout | None) -> Scan:
        """Compare the ids of both sides."""
        of_kept, of_changed = (f"id FROM {side} WHERE domain = {number}" for side in ("kept", "changed"))
        both = f"(SELECT 1 AS side, {of_kept} UNION ALL SELECT 2, {of_changed})"
        limit = (1 << (layout.total_bits if layout else 63)) - 1
        kept, changed, lowest, changed_highest, highest, unfit = self.rows(
            "SELECT count(*) FILTER (side = 1), count(*) FILTER (side = 2), min(id) FILTER (side = 2), "
            f"max(id) FILTER (side = 2), max(id), count(*) FILTER (id NOT BETWEEN 0 AND {limit}) FROM {both}"
        )[0]
        (clashes,) = self.rows(f"SELECT count(*) FROM ({self._clashes(number)})")[0]
        lanes: frozenset[int] = frozenset()
        if layout is not None:
            query = f"SELECT DISTINCT id & {lane_mask(layout)} FROM {both} WHERE id BETWEEN 0 AND {limit}"
            lanes = frozenset(lane for (lane,) in self.rows(query))
        return Scan(kept, changed, clashes, lowest or 0, changed_highest or 0, highest or 0, lanes, unfit)

    def _clashes(self, number: int) -> str:
        return f"SELECT id FROM changed SEMI JOIN kept USING (domain, id) WHERE domain = {number}"

    def clashes(self, number: int) -> list[int]:
        """Return the ids that both sides have, sorted."""
        return [an_id for (an_id,) in self.rows(f"{self._clashes(number)} ORDER BY id")]

    def ids(self, side: str, number: int) -> list[int]:
        """Return the ids of one side, sorted."""
        return [an_id for (an_id,) in self.rows(f"SELECT id FROM {side} WHERE domain = {number} ORDER BY id")]

    def is_subset(self, side: str, number: int, other: int) -> bool:
        """Return whether one domain has all ids of another, on one side."""
        of_other = f"SELECT id FROM {side} WHERE domain = {other}"
        missing = f"SELECT 1 FROM {side} a WHERE domain = {number} AND id NOT IN ({of_other})"
        return not self.rows(f"SELECT EXISTS ({missing})")[0][0]

    def count_of(self, side: str, number: int, values: list[int]) -> int:
        """Return how many of *values* are ids of a domain, on one side."""
        self.insert("page", "id", {"id": np.array(values, dtype=np.int64)})
        (count,) = self.rows(f"SELECT count(*) FROM {side} SEMI JOIN page USING (id) WHERE domain = {number}")[0]
        self.rows("DELETE FROM page")
        return int(count)

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
        of_kept, of_changed = (f"(SELECT id FROM {side} WHERE domain = {number})" for side in ("kept", "changed"))
        after = f"(SELECT coalesce(m.new, c.id) AS id FROM {of_changed} c LEFT JOIN {mine} m ON m.old = c.id)"
        checks = {
            "is to get a new id, and does not exist any more": f"SELECT old FROM {mine} WHERE old NOT IN {of_changed}",
            "is there twice after the change": f"SELECT id FROM {after} GROUP BY id HAVING count(*) > 1",
            "is a temporary id of the plan, and is in use": f"SELECT via FROM {mine} WHERE via <> new AND (via IN "
            f"{of_kept} OR via IN {of_changed} OR via IN (SELECT new FROM {mine}))",
        }
        if not matched:
            checks["is a new id of the plan, and is in use"] = (
                f"SELECT new FROM {mine} WHERE new IN {of_kept} OR new IN {of_changed}"
            )
            checks["is in both databases, and not in the plan"] = (
                f"SELECT id FROM {of_changed} WHERE id IN {of_kept} AND id NOT IN (SELECT old FROM {mine})"
            )
        for what, query in checks.items():
            if found := self.rows(f"SELECT * FROM ({query}) LIMIT 1"):
                raise MergeError(
                    f"{name}: {found[0][0]} {what}. Nothing was changed; the databases are not as they were when the "
                    "plan was made: stop what writes to them, and make a new plan."
                )
