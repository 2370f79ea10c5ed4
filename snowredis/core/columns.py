"""Decode many ids at once. Pure; uses numpy if it is installed, and imports it only when called."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from snowredis.core.values import as_int
from snowredis.errors import InvalidId, shown


class Columns(NamedTuple):
    """Fields of many ids: one int64 array (numpy or array('q')) for each field, in the order of the ids.

    Attributes:
        timestamp_ms: start of the tick, ms since 1970.
        tick: number of the tick, counted from the layout's epoch.
    """

    timestamp_ms: Any
    datacenter: Any
    backup: Any
    worker: Any
    sequence: Any
    tick: Any

    def __repr__(self) -> str:
        count = len(self.tick)
        return f"<snowredis.Columns of {count:,} id{'' if count == 1 else 's'}: {', '.join(self._fields)}>"


def decode_many(
    ids: Any, parts: Sequence[tuple[int, int]], *, epoch_ms: int, tick_ms: int, total_bits: int, layout: str
) -> Columns:
    """See Layout.decode_many().

    Args:
        parts: shift and bits of timestamp, datacenter, backup, worker and sequence.
        layout: its text, for error messages.
    """
    flat: Any = _as_int64(ids)
    numpy = _numpy()
    if numpy is not None:
        flat = numpy.asarray(flat)
        wrong = (flat < 0) | (flat >> total_bits != 0)
        at = int(wrong.argmax()) if wrong.any() else -1
    else:
        wrong_at = (at for at, an_id in enumerate(flat) if an_id < 0 or an_id >> total_bits)
        at = next(wrong_at, -1)
    if at >= 0:
        raise InvalidId(
            f"{flat[at]} at index {at} is not a valid id of the layout {layout}, which has {total_bits} bits. "
            "Nothing was decoded; use the layout that the ids were made with."
        )

    def part(shift: int, bits: int) -> Any:
        mask = (1 << bits) - 1
        return (flat >> shift & mask) if numpy else array("q", [an_id >> shift & mask for an_id in flat])

    ticks, datacenter, backup, worker, sequence = (part(shift, bits) for shift, bits in parts)
    times = epoch_ms + ticks * tick_ms if numpy else array("q", [epoch_ms + tick * tick_ms for tick in ticks])
    return Columns(times, datacenter, backup, worker, sequence, ticks)


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError:
        return None
    return np


def _as_int64(ids: Any) -> memoryview | array[int]:
    """Return *ids* as flat int64: the buffer itself if it holds 64-bit integers or their bytes, else a copy."""
    try:
        view = memoryview(ids)
    except TypeError:
        return array("q", _each(ids))
    whole = view.format in ("q", "l", "Q", "L") and view.itemsize == 8
    if not whole and (view.format not in ("B", "b", "c") or view.nbytes % 8):
        raise InvalidId(
            f"{view.nbytes} bytes of format {view.format!r} cannot hold ids. Nothing was decoded; pass 64-bit "
            "integers (format 'q') or their bytes."
        )
    if not view.nbytes:
        return array("q")
    return (view if view.c_contiguous else memoryview(view.tobytes())).cast("B").cast("q")


def _each(ids: Iterable[Any]) -> Iterator[int]:
    for at, an_id in enumerate(ids):
        try:
            number = as_int(an_id)
        except TypeError:
            number = -1
        if not 0 <= number < 1 << 63:
            raise InvalidId(
                f"{shown(an_id)} at index {at} is not a valid id (an int from 0 to 2**63 - 1). Nothing was decoded."
            )
        yield number
