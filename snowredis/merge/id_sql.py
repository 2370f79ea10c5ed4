"""Fields of ids as SQL expressions, and the whole check as SQL for other engines: `merge check --emit-sql DIALECT`.

Written once, in DuckDB's dialect, and translated by SQLGlot. Pure text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from snowredis.core.layout import MAX_ID, Layout
from snowredis.errors import ConfigError
from snowredis.merge.sources import Source

__all__ = [
    "DIALECTS",
    "ID_LIMIT",
    "Bounds",
    "Dialect",
    "FieldSql",
    "check_as_sql",
    "queries",
    "quoted",
    "text_literal",
]

# one more than the greatest id
ID_LIMIT = MAX_ID + 1
# a layout's first hour holds no id of a generator that was started later, but every counter that starts at 1
COUNTER_MS = 3_600_000


def quoted(name: str) -> str:
    """Return *name* as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return *text* as a literal."""
    return "'" + text.replace("'", "''") + "'"


class FieldSql:
    """Expressions for the fields of the ids of one layout in column *an_id*."""

    def __init__(self, layout: Layout, an_id: str = "id") -> None:
        self._layout, self._id = layout, an_id

    def _field(self, shift: int, bits: int) -> str:
        if not bits:
            return "0"
        shifted = f"({self._id} >> {shift})" if shift else self._id
        return f"({shifted} & {(1 << bits) - 1})"

    @property
    def tick(self) -> str:
        shift = self._layout.timestamp_shift
        return f"({self._id} >> {shift})" if shift else self._id

    @property
    def time_ms(self) -> str:
        tick = self.tick if self._layout.tick_ms == 1 else f"({self.tick} * {self._layout.tick_ms})"
        return f"({tick} + {self._layout.epoch_ms})"

    @property
    def datacenter(self) -> str:
        return self._field(self._layout.datacenter_shift, self._layout.datacenter_bits)

    @property
    def worker(self) -> str:
        return self._field(self._layout.worker_shift, self._layout.worker_bits)


class Bounds(NamedTuple):
    """Ranges of ids of one layout, half-open: negative < 0 <= counter < plausible <= future < too_wide.

    Attributes:
        first: ids below are of the layout's first hour, as those of counters are.
        future: ids from here on have a time that has not come yet.
        limit: ids from here on have bits above those of the layout.
    """

    first: int
    future: int
    limit: int

    @classmethod
    def of(cls, layout: Layout, now_ms: int) -> Bounds:
        """Return the bounds, if it is *now_ms*."""
        first, future = layout.id_range(
            layout.epoch_ms + COUNTER_MS, max(now_ms, layout.epoch_ms + COUNTER_MS)
        )
        return cls(first, future, 1 << layout.total_bits)


# --- the check as SQL ------------------------------------------------------------------------------------

Dialect = Literal["spark", "trino", "clickhouse", "bigquery", "duckdb", "postgres", "mysql", "sqlite"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
# ids whose time is less than this ahead are not from the future: clocks differ
CLOCKS_DIFFER_MS = 60_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")

_TITLES = {
    "repeated": "ids that are used by more than one row",
    "made_by": "the same ids by source and worker id, with their first and last time in ms since 1970",
    "problems": "values that cannot be right, by source",
    "shared_workers": "worker ids that made ids in several sources, whose next ids can be equal",
}


class _Table(NamedTuple):
    """A source as the engine sees it."""

    name: str
    table: str
    column: str


def check_as_sql(sources: Sequence[Source], dialect: Dialect, *, now_ms: int | None = None) -> str:
    """Return the check as one script, with comments that say which table each source has to be."""
    lines = [f"-- snowredis merge check, as SQL for {dialect}. Each source is a table:"]
    for source, table in zip(sources, _tables(sources, dialect), strict=True):
        line = f"{table.name}: column {table.column} of {table.table}, which is {source.shown}"
        # a line break in a name must not end the comment
        lines.append(f"--   {_UNPRINTABLE.sub('?', line)}")
    for name, query in queries(sources, dialect, now_ms=now_ms).items():
        lines += ["", f"-- {name}: {_TITLES[name]}", f"{query};"]
    return "\n".join(lines)


def queries(sources: Sequence[Source], dialect: Dialect, *, now_ms: int | None = None) -> dict[str, str]:
    """Return the queries of the check by name, without semicolons.

    Args:
        now_ms: ids of later times are from the future; None: the clock of this host.
    """
    if dialect not in DIALECTS:
        raise ConfigError(
            f"{dialect!r} is no dialect that SQL is written in; use one of {', '.join(DIALECTS)}."
        )
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    tables = _tables(sources, dialect)
    bounds = [Bounds.of(source.layout, now_ms + CLOCKS_DIFFER_MS) for source in sources]
    ids = _union(
        [f"SELECT {text_literal(t.name)} AS source, {t.column} AS id FROM {t.table}" for t in tables]
    )
    decoded = _union([_decoded(t, source) for t, source in zip(tables, sources, strict=True)])
    plausible = _union(
        [_plausible(t, source, b) for t, source, b in zip(tables, sources, bounds, strict=True)]
    )
    texts = {
        "repeated": f"WITH ids AS ({ids}) SELECT id, count(*) AS times, count(DISTINCT source) AS sources, "
        "min(source) AS first_source, max(source) AS last_source FROM ids WHERE id IS NOT NULL "
        "GROUP BY id HAVING count(*) > 1 ORDER BY id",
        "made_by": f"WITH ids AS ({decoded}), repeated AS (SELECT id FROM ids GROUP BY id HAVING count(*) > 1) "
        "SELECT ids.source, ids.datacenter, ids.worker, count(DISTINCT ids.id) AS repeated_ids, "
        "min(ids.time_ms) AS first_ms, max(ids.time_ms) AS last_ms FROM ids JOIN repeated ON ids.id = repeated.id "
        "GROUP BY ids.source, ids.datacenter, ids.worker ORDER BY ids.source, ids.datacenter, ids.worker",
        "problems": _union([_problems(t, b) for t, b in zip(tables, bounds, strict=True)]),
        "shared_workers": f"WITH ids AS ({plausible}) SELECT layout, datacenter, worker, count(DISTINCT "
        "source) AS sources, "
        "min(source) AS first_source, max(source) AS last_source, min(time_ms) AS first_ms, max(time_ms) AS last_ms "
        "FROM ids GROUP BY layout, datacenter, worker HAVING count(DISTINCT source) > 1 "
        "ORDER BY layout, datacenter, worker",
    }
    return {name: translated(text, dialect) for name, text in texts.items()}


def translated(text: str, dialect: Dialect) -> str:
    """Return SQL of DuckDB's dialect in another one."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(text, read="duckdb")
    if dialect == "clickhouse":
        # it has no operators for bits, and SQLGlot writes them all the same
        functions = {exp.BitwiseRightShift: "bitShiftRight", exp.BitwiseAnd: "bitAnd"}
        for node in list(tree.find_all(*functions)):
            operands = [node.this, node.expression]
            node.replace(exp.Anonymous(this=functions[type(node)], expressions=operands))
    return tree.sql(dialect, pretty=True)


def _tables(sources: Sequence[Source], dialect: Dialect) -> list[_Table]:
    own = [(source.schema, source.table) for source in sources]
    tables = []
    for number, source in enumerate(sources):
        name = _UNSAFE.sub("_", source.name)
        column = quoted(source.column or "id")
        if dialect == "duckdb" and source.kind in ("csv", "parquet"):
            table = f"read_{source.kind}({text_literal(source.location)})"
        elif source.table is not None and own.count(own[number]) == 1:
            table = ".".join(quoted(part) for part in own[number] if part is not None)
        else:
            # a file, or one of several tables of the same name: loaded under the name of the source
            table = quoted(name.replace(".", "_").replace("-", "_"))
        tables.append(_Table(name, table, column))
    return tables


def _decoded(table: _Table, source: Source) -> str:
    fields = FieldSql(source.layout, table.column)
    fits = f"{table.column} >= 0"
    if source.layout.total_bits < 63:
        fits += f" AND {table.column} < {1 << source.layout.total_bits}"
    columns = ", ".join(
        f"CASE WHEN {fits} THEN {expression} END AS {name}"
        for name, expression in (
            ("datacenter", fields.datacenter),
            ("worker", fields.worker),
            ("time_ms", fields.time_ms),
        )
    )
    return (
        f"SELECT {text_literal(table.name)} AS source, {table.column} AS id, {columns} FROM {table.table} "
        f"WHERE NOT {table.column} IS NULL"
    )


def _plausible(table: _Table, source: Source, bounds: Bounds) -> str:
    fields = FieldSql(source.layout, table.column)
    return (
        f"SELECT {text_literal(table.name)} AS source, {text_literal(str(source.layout))} AS layout, "
        f"{fields.datacenter} AS datacenter, {fields.worker} AS worker, {fields.time_ms} AS time_ms FROM {table.table} "
        f"WHERE {table.column} >= {bounds.first} AND {table.column} < {bounds.future}"
    )


def _problems(table: _Table, bounds: Bounds) -> str:
    column = table.column
    future = f"{column} >= {bounds.future}"
    too_wide = "1 = 0"
    if bounds.limit < ID_LIMIT:
        too_wide = f"{column} >= {bounds.limit}"
        future += f" AND {column} < {bounds.limit}"
    counts = ", ".join(
        f"coalesce(sum(CASE WHEN {condition} THEN 1 ELSE 0 END), 0) AS {name}"
        for name, condition in (
            ("missing", f"{column} IS NULL"),
            ("negative", f"{column} < 0"),
            ("too_wide", too_wide),
            ("future", future),
            ("counter", f"{column} >= 0 AND {column} < {bounds.first}"),
        )
    )
    return f"SELECT {text_literal(table.name)} AS source, count(*) AS n_rows, {counts} FROM {table.table}"


def _union(parts: Sequence[str]) -> str:
    return " UNION ALL ".join(parts)
