"""Decide whether old and new ids of a column can be equal, and whether new ones sort after old ones.

Exact, not a sample: the ids of a layout in a period, or of a counter, are all numbers whose fields lie in given
ranges. Two such sets are compared bit by bit, from the most significant, so fields may begin at different bits.
Pure: no clock, no database.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from snowredis.core.layout import Layout
from snowredis.core.values import ID_BITS, MAX_ID, as_int
from snowredis.errors import ConfigError, shown

Range = tuple[int, int]


class FieldRange(NamedTuple):
    """Values *low* to *high*, both included, of a field of *bits* bits."""

    bits: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class IdSet:
    """All ids whose fields are in their ranges, independently of each other.

    Attributes:
        fields: from the most significant; the widths add up to 63. None is empty.
        layout: the layout of the ids; None for a counter.
    """

    fields: tuple[FieldRange, ...]
    layout: Layout | None = None

    @property
    def lowest(self) -> int:
        """The smallest id of the set."""
        return self._joined(each.low for each in self.fields)

    @property
    def highest(self) -> int:
        """The greatest id of the set."""
        return self._joined(each.high for each in self.fields)

    def _joined(self, values: Iterable[int]) -> int:
        """Return the id whose fields have these *values*."""
        number = 0
        for field, value in zip(self.fields, values, strict=True):
            number = number << field.bits | value
        return number

    def __contains__(self, an_id: int) -> bool:
        rest, left = an_id, ID_BITS
        if not 0 <= an_id <= MAX_ID:
            return False
        for bits, low, high in self.fields:
            left -= bits
            if not low <= rest >> left <= high:
                return False
            rest &= (1 << left) - 1
        return True


def counter_ids(last: int, first: int = 1) -> IdSet:
    """Return the ids of an auto-increment column or sequence, *first* to *last*.

    Raises:
        ConfigError: a number that is not an id, or *first* above *last*.
    """
    first, last = _id_in_range("the first id of a counter", first), _id_in_range("its last id", last)
    if first > last:
        raise ConfigError(
            f"a counter from {first} to {last} has no ids. Nothing was decided; give its smallest id first."
        )
    return IdSet((FieldRange(ID_BITS, first, last),))


def layout_ids(
    layout: Layout,
    *,
    from_ms: int | None = None,
    until_ms: int | None = None,
    datacenters: Range | None = None,
    workers: Range | None = None,
) -> IdSet:
    """Return all ids that generators with *layout* can make from one moment to another, both included.

    Args:
        from_ms: Unix ms of the first tick; None, or a time before the epoch: from the epoch on.
        until_ms: Unix ms of the last tick; None, or a time past the layout's end: to its end.
        datacenters, workers: the lowest and the highest that are used; None: any.

    Raises:
        ConfigError: no id can be made in that period, or a range that the layout does not have.
    """
    first = 0 if from_ms is None else max(0, layout.tick_at(from_ms))
    last = layout.max_tick if until_ms is None else min(layout.max_tick, layout.tick_at(until_ms))
    if first > last:
        raise ConfigError(
            f"no id of the layout {layout} can be made in the given period: "
            f"{_period_error(layout, from_ms, until_ms)}. Nothing was decided; check the dates and the epoch."
        )
    given = {"datacenter": datacenters, "worker": workers}
    ranges = [FieldRange(ID_BITS - layout.timestamp_shift, first, last)]
    for name, bits in layout.fields[1:]:
        low, high = _range(name, given.get(name), bits, layout)
        if bits:
            ranges.append(FieldRange(bits, low, high))
    return IdSet(tuple(ranges), layout)


def _range(name: str, given: Range | None, bits: int, layout: Layout) -> Range:
    maximum = (1 << bits) - 1
    if given is None:
        return 0, maximum
    low, high = given
    if not 0 <= low <= high <= maximum:
        raise ConfigError(
            f"{name} {low}-{high} is not a range within 0-{maximum}, which is what the layout {layout} has. "
            f"Nothing was decided; give the lowest {name} in use, then the highest."
        )
    return low, high


def _period_error(layout: Layout, from_ms: int | None, until_ms: int | None) -> str:
    if from_ms is not None and from_ms >= layout.end_ms:
        return "it begins when the layout has ended"
    if until_ms is not None and until_ms < layout.epoch_ms:
        return "it ends before the layout's epoch"
    return "it ends before it begins"


def _id_in_range(name: str, value: object) -> int:
    try:
        number = as_int(value)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_ID:
        raise ConfigError(f"{name} must be a whole number in 0 .. {MAX_ID}, not {shown(value)}.")
    return number


# --- what two sets have in common ------------------------------------------------------------------------


class CommonIds(NamedTuple):
    """Ids that are in both of two sets: how many, the smallest and the greatest."""

    size: int
    lowest: int
    highest: int


class _Bit(NamedTuple):
    """One bit of a set: of the lowest and highest value of its field; and whether the field ends with it."""

    low: int
    high: int
    last_of_field: bool


# whether the bits chosen so far in the current field equal those of its lowest value, and those of its highest
_State = tuple[bool, bool]
_FIELD_BEGINS: _State = (True, True)


def common_ids(a: IdSet, b: IdSet) -> CommonIds | None:
    """Return what two sets have in common; None if that is nothing."""
    bits_a, bits_b = _bits(a), _bits(b)

    @cache
    def from_bit(at: int, state_a: _State, state_b: _State) -> CommonIds | None:
        """Return the choices for the bits after the first *at*: how many, the smallest, the greatest."""
        if at == ID_BITS:
            return CommonIds(1, 0, 0)
        found = []
        for digit in (0, 1):
            next_a, next_b = _after(state_a, bits_a[at], digit), _after(state_b, bits_b[at], digit)
            if next_a and next_b and (rest := from_bit(at + 1, next_a, next_b)):
                value = digit << (ID_BITS - 1 - at)
                found.append(CommonIds(rest.size, value + rest.lowest, value + rest.highest))
        if not found:
            return None
        return CommonIds(sum(part.size for part in found), found[0].lowest, found[-1].highest)

    return from_bit(0, _FIELD_BEGINS, _FIELD_BEGINS)


def _bits(ids: IdSet) -> list[_Bit]:
    return [
        _Bit(low >> place & 1, high >> place & 1, place == 0)
        for bits, low, high in ids.fields
        for place in reversed(range(bits))
    ]


def _after(state: _State, bit: _Bit, digit: int) -> _State | None:
    """Return the state after *digit* was chosen for *bit*; None if it leaves the range of the field."""
    at_low, at_high = state
    if (at_low and digit < bit.low) or (at_high and digit > bit.high):
        return None
    if bit.last_of_field:
        return _FIELD_BEGINS
    return at_low and digit == bit.low, at_high and digit == bit.high


# --- the proof -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proof:
    """Answer to: can old and new ids be equal, and do all new ones sort after all old ones?

    Attributes:
        old, new: the two sets.
        layout: the layout of the new ids.
        start_ms: Unix ms of the start that was asked for.
        common: the ids that both can make; None if they can never be equal.
        distinct_from_ms: Unix ms of the earliest start of the new ids from which none equals an old one; not before
            the start that was asked for. None: there is none, until the layout ends.
        sorts_from_ms: the same, for new ids that are all greater than all old ones.
        latest_epoch_ms: the latest epoch with which the new layout's ids sort after the old ones from the start that
            was asked for. None: no epoch since 1970 does.
    """

    old: IdSet
    new: IdSet
    layout: Layout
    start_ms: int
    common: CommonIds | None
    distinct_from_ms: int | None
    sorts_from_ms: int | None
    latest_epoch_ms: int | None

    @property
    def distinct(self) -> bool:
        """Return True if no new id can equal an old one."""
        return self.common is None

    @property
    def sorted(self) -> bool:
        """Return True if every new id is greater than every old one."""
        return self.new.lowest > self.old.highest


def prove(
    old: IdSet,
    layout: Layout,
    *,
    start_ms: int,
    clock_error_ms: int = 0,
    datacenters: Range | None = None,
    workers: Range | None = None,
) -> Proof:
    """Compare the ids that a column has, or gets until the switch, with those of *layout* from the switch to its end.

    Args:
        old: from counter_ids() or layout_ids().
        start_ms: Unix ms of the switch: the first new id may be made then.
        clock_error_ms: how far a clock may be behind at the switch; ids of that much before it are new ones, too.
        datacenters, workers: of the new ids, as in layout_ids().

    Raises:
        ConfigError: the layout ends before *start_ms*, or a range that it does not have.
    """
    new = layout_ids(layout, from_ms=start_ms - clock_error_ms, datacenters=datacenters, workers=workers)
    first_tick = new.fields[0].low
    common = common_ids(old, new)
    free_tick = first_tick if common is None else (common.highest >> layout.timestamp_shift) + 1
    # the lowest id of any tick is this much above the tick
    in_tick = new.lowest - (first_tick << layout.timestamp_shift)
    sorting_tick = max(0, (old.highest - in_tick >> layout.timestamp_shift) + 1)

    def start_at(tick: int) -> int | None:
        if tick <= first_tick:
            return start_ms
        return layout.ms_at(tick) + clock_error_ms if tick <= layout.max_tick else None

    epoch_ms = start_ms - clock_error_ms - sorting_tick * layout.tick_ms
    return Proof(
        old=old,
        new=new,
        layout=layout,
        start_ms=start_ms,
        common=common,
        distinct_from_ms=start_at(free_tick),
        sorts_from_ms=start_at(sorting_tick),
        latest_epoch_ms=epoch_ms if sorting_tick <= layout.max_tick and epoch_ms >= 0 else None,
    )
