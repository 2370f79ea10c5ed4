"""Fields and ranges of ids as SQL expressions, in DuckDB's dialect. Pure text."""

from __future__ import annotations

from typing import NamedTuple

from snowredis.core.layout import Layout

__all__ = ["Bounds", "FieldSql", "quoted", "text_literal"]

# a layout's first hour holds no id of a generator that was started later, but every counter that starts at 1
COUNTER_MS = 3_600_000
# ids whose time is less than this ahead are not from the future: clocks differ
CLOCKS_DIFFER_MS = 60_000


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
    def time_ms(self) -> str:
        tick = self._field(self._layout.timestamp_shift, self._layout.timestamp_bits)
        return f"({tick} * {self._layout.tick_ms} + {self._layout.epoch_ms})"

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
        first, future = layout.id_range(layout.epoch_ms + COUNTER_MS, max(now_ms, layout.epoch_ms + COUNTER_MS))
        return cls(first, future, 1 << layout.total_bits)
