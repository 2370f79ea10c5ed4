"""`snowredis migrate proof`: can old and new ids be equal?

Old ids nearly always stay: numbers of a counter are far below the ids of a layout. The proof says so for the column as
it is, and names the start, or the epoch, from which it holds.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, moment_ms, number
from snowredis.cli.output import printable, wrapped, write
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import preset_name, resolve_layout
from snowredis.core.values import ID_BITS, MAX_ID, duration, time_text
from snowredis.errors import ConfigError

Range = tuple[int, int]
# the lowest and the highest value that is used of each field, by its name; None, or no such name: any
Used = Mapping[str, Range | None]


@dataclass(frozen=True)
class IdSet:
    """All ids whose fields are in their ranges, independently of each other.

    Attributes:
        lowest, highest: the smallest and the greatest id, which have the lowest and the highest value of each field.
        layout: the layout of the ids; None for a counter, which has one field.
    """

    lowest: int
    highest: int
    layout: Layout | None = None

    @property
    def ends(self) -> set[int]:
        """The place of the last bit of each field."""
        return {getattr(self.layout, f"{name}_shift") for name, _ in self.layout.fields} if self.layout else {0}


def counter_ids(last: int) -> IdSet:
    """Return the ids of an auto-increment column or sequence, 1 to *last*.

    Raises:
        ConfigError: no such id.
    """
    if not 1 <= last <= MAX_ID:
        raise ConfigError(f"the greatest old id must be in 1 .. {MAX_ID}, not {last}. Nothing was decided; correct it.")
    return IdSet(1, last)


def layout_ids(
    layout: Layout, used: Used | None = None, *, from_ms: int | None = None, until_ms: int | None = None
) -> IdSet:
    """Return all ids that generators with *layout* can make from one moment to another, both included.

    Args:
        used: values of the datacenter and the worker that are used.
        from_ms: Unix ms of the first tick; None, or a time before the epoch: from the epoch on.
        until_ms: Unix ms of the last tick; None, or a time past the layout's end: to its end.

    Raises:
        ConfigError: no id can be made in that period, or a range that the layout does not have.
    """
    lowest = 0 if from_ms is None else max(0, layout.tick_at(from_ms))
    highest = layout.max_tick if until_ms is None else min(layout.max_tick, layout.tick_at(until_ms))
    if lowest > highest:
        raise ConfigError(
            f"no id of the layout {layout} can be made in the given period: it has ids from "
            f"{time_text(layout.epoch_ms)} to {time_text(layout.end_ms)}. Nothing was decided; check the dates and the "
            "epoch."
        )
    for name, bits in layout.fields[1:]:
        maximum = (1 << bits) - 1
        low, high = (used or {}).get(name) or (0, maximum)
        if not 0 <= low <= high <= maximum:
            raise ConfigError(
                f"{name} {low}-{high} is not a range within 0-{maximum}, which is what the layout {layout} has. "
                f"Nothing was decided; give the lowest {name} in use, then the highest."
            )
        lowest, highest = lowest << bits | low, highest << bits | high
    return IdSet(lowest, highest, layout)


# --- what two sets have in common ------------------------------------------------------------------------


class CommonIds(NamedTuple):
    """Ids that are in both of two sets: how many, the smallest and the greatest."""

    size: int
    lowest: int
    highest: int


# whether the bits chosen so far in the current field equal those of its lowest value, and those of its highest
_State = tuple[bool, bool]
_FIELD_BEGINS: _State = (True, True)


def common_ids(a: IdSet, b: IdSet) -> CommonIds | None:
    """Return what two sets have in common; None if that is nothing."""

    @cache
    def below(place: int, state_a: _State, state_b: _State) -> CommonIds | None:
        """Return the choices for the bits below *place*: how many, the smallest, the greatest."""
        if not place:
            return CommonIds(1, 0, 0)
        place -= 1
        found = []
        for digit in (0, 1):
            next_a, next_b = _after(state_a, a, place, digit), _after(state_b, b, place, digit)
            if next_a and next_b and (rest := below(place, next_a, next_b)):
                value = digit << place
                found.append(CommonIds(rest.size, value + rest.lowest, value + rest.highest))
        return CommonIds(sum(part.size for part in found), found[0].lowest, found[-1].highest) if found else None

    return below(ID_BITS, _FIELD_BEGINS, _FIELD_BEGINS)


def _after(state: _State, ids: IdSet, place: int, digit: int) -> _State | None:
    """Return the state after *digit* was chosen for a bit; None if it leaves the range of the field."""
    (at_low, at_high), low, high = state, ids.lowest >> place & 1, ids.highest >> place & 1
    if (at_low and digit < low) or (at_high and digit > high):
        return None
    return _FIELD_BEGINS if place in ids.ends else (at_low and digit == low, at_high and digit == high)


# --- the proof -------------------------------------------------------------------------------------------


class Proof:
    """Answer to: can old and new ids be equal, and do all new ones sort after all old ones?

    Old ids are those that a column has, or gets until the switch; new ones those of *layout*, from then to its end.

    Args:
        old: from counter_ids() or layout_ids().
        used: of the new ids, as in layout_ids().
        start_ms: Unix ms of the switch: the first new id may be made then.
        clock_error_ms: how far a clock may be behind at the switch; ids of that much before it are new ones, too.

    Attributes:
        old, new: the two sets.
        layout: the layout of the new ids.
        common: the ids that both can make; None if they can never be equal.
        distinct: True if no new id can equal an old one.
        sorted: True if every new id is greater than every old one.
        distinct_from_ms: Unix ms of the earliest start of the new ids from which none equals an old one; not before
            the start that was asked for. None: there is none, until the layout ends.
        sorts_from_ms: the same, for new ids that are all greater than all old ones.
        latest_epoch_ms: the latest epoch with which the new layout's ids sort after the old ones from the start that
            was asked for. None: no epoch since 1970 does.

    Raises:
        ConfigError: the layout ends before *start_ms*, or a range that it does not have.
    """

    def __init__(
        self, old: IdSet, layout: Layout, used: Used | None = None, *, start_ms: int, clock_error_ms: int = 0
    ) -> None:
        self.old, self.layout, self.start_ms, self._error_ms = old, layout, start_ms, clock_error_ms
        self.new = layout_ids(layout, used, from_ms=start_ms - clock_error_ms)
        self.common = common_ids(old, self.new)
        self.distinct, self.sorted = self.common is None, self.new.lowest > old.highest
        # a later start changes nothing but the tick of the lowest new id
        shift = layout.timestamp_shift
        free_tick = (self.common.highest >> shift) + 1 if self.common else 0
        sorting_tick = max(0, (old.highest - self.new.lowest % (1 << shift) >> shift) + 1)
        self.distinct_from_ms, self.sorts_from_ms = self._start_at(free_tick), self._start_at(sorting_tick)
        epoch_ms = start_ms - clock_error_ms - sorting_tick * layout.tick_ms
        self.latest_epoch_ms = epoch_ms if sorting_tick <= layout.max_tick and epoch_ms >= 0 else None

    def _start_at(self, tick: int) -> int | None:
        if tick <= self.new.lowest >> self.layout.timestamp_shift:
            return self.start_ms
        return self.layout.ms_at(tick) + self._error_ms if tick <= self.layout.max_tick else None


AUTO_INCREMENT = "auto-increment"
# how far clocks may be off, on both sides
CLOCK_ERROR_MS = 10_000


def _add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    text = f"the old ids: {AUTO_INCREMENT} (the default), or a layout's name or spec"
    add("--from", dest="old", default=AUTO_INCREMENT, metavar="LAYOUT", help=text)
    add("--max", type=number(0), metavar="ID", help="the greatest old id at --start")
    add("--until", type=moment_ms, metavar="TIME", help="when the last old id is made (default: at --start)")
    text = "those that made old ids: 3, or 0-31 (default: any)"
    add("--old-datacenter", type=_range, metavar="N", help=text)
    add("--old-worker", type=_range, metavar="N", help="the same, of worker ids")
    text = "the layout of the new ids (default: 'default')"
    add("--to", dest="new", default="default", metavar="LAYOUT", help=text)
    add("--datacenter", type=_range, metavar="N", help="those that make new ids (default: any)")
    text = "when the first new id is made: an ISO date or time (UTC), or Unix ms (default: now)"
    add("--start", type=moment_ms, metavar="TIME", help=text)


def _range(text: str) -> Range:
    match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is neither a number nor a range: write it as 3 or 0-31"
        )
    return int(match[1]), int(match[2] or match[1])


def _run(args: argparse.Namespace) -> int:
    """Prove whether old and new ids can be equal, and whether new ones sort after old ones.

    Decided from all ids that either side can make, not from a sample. Exit code 0: old and new ids are never equal; 10:
    they can be.

    examples:
      snowredis migrate proof --max 81234567
      snowredis migrate proof --from twitter --to game  two layouts
    """
    start_ms = time.time_ns() // 1_000_000 if args.start is None else args.start
    old, new, used = _old_ids(args, start_ms), resolve_layout(args.new), {"datacenter": args.datacenter}
    proof = Proof(old, new, used, start_ms=start_ms, clock_error_ms=CLOCK_ERROR_MS)
    for label, text in _report(proof):
        # all texts begin in the same column
        write(wrapped(f"{label:<9}", text))
    return ExitCode.OK if proof.distinct else ExitCode.FOUND_CLASHES


def _old_ids(args: argparse.Namespace, start_ms: int) -> IdSet:
    if args.old == AUTO_INCREMENT:
        if args.max is not None:
            return counter_ids(max(1, args.max))
        raise CommandError(
            ExitCode.USAGE,
            "the greatest old id is unknown, so nothing can be proved. Add --max with SELECT max(id) of the table, or "
            "--from with the layout of the old ids.",
        )
    layout = resolve_layout(args.old)
    made_ms = 0 if args.max is None else layout.decode(args.max).timestamp_ms
    if made_ms > start_ms + CLOCK_ERROR_MS:
        raise CommandError(
            ExitCode.BAD_INPUT,
            f"by the layout {layout}, id {args.max} was made at {time_text(made_ms)}, after the switch. Nothing was "
            "proved; check --from: 'snowredis decode --layout' shows when an id was made.",
        )
    until_ms = (start_ms if args.until is None else args.until) + CLOCK_ERROR_MS
    return layout_ids(layout, {"datacenter": args.old_datacenter, "worker": args.old_worker}, until_ms=until_ms)


# --- the proof as text -----------------------------------------------------------------------------------


def _report(proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield the proof: a label and a text."""
    yield "old ids", _described(proof.old)
    yield "new ids", _described(proof.new)
    if proof.common is None:
        yield "equal", "never: no new id is an old one"
    else:
        count, lowest, _ = proof.common
        makers = f"{_maker(proof.old, lowest)}, and {_maker(proof.new, lowest)}"
        yield "equal", f"possible: {count:,} ids; the first is {lowest}, {makers}"
    ends = f"the smallest new id is {proof.new.lowest}, the greatest old one {proof.old.highest}"
    yield "order", "kept: every new id is greater than every old one" if proof.sorted else f"not kept: {ends}"
    if not (proof.distinct and proof.sorted):
        yield from (("to do", text) for text in _remedies(proof))


def _described(ids: IdSet) -> str:
    if ids.layout is None:
        return f"{AUTO_INCREMENT}, {ids.lowest:,} to {ids.highest:,}"
    layout, lowest, highest = ids.layout, ids.layout.decode(ids.lowest), ids.layout.decode(ids.highest)
    until_text = time_text(layout.ms_at(highest.tick + 1) - 1)
    text = f"{preset_name(layout) or layout_spec(layout)}, {time_text(lowest.timestamp_ms)} to {until_text}"
    for name, bits in layout.fields[1:]:
        low, high = getattr(lowest, name), getattr(highest, name)
        if high - low + 1 < 1 << bits:
            text += f", {name} {low}" + (f"-{high}" if high > low else "")
    return text


def _maker(ids: IdSet, an_id: int) -> str:
    if ids.layout is None:
        return "counted"
    parts = ids.layout.decode(an_id)
    datacenter = f"datacenter {parts.datacenter} " if ids.layout.datacenter_bits else ""
    return f"made at {time_text(parts.timestamp_ms)} by {datacenter}worker {parts.worker}"


def _remedies(proof: Proof) -> Iterator[str]:
    """Yield what a person can do: for equal ids first, then for the order."""
    starts = {proof.distinct_from_ms: "no new id equals an old one"}
    # if both begin at one moment, the order says more
    starts[proof.sorts_from_ms] = "all new ids are greater"
    for time_ms, effect in starts.items():
        if time_ms is not None and time_ms > proof.start_ms:
            yield f"start at {time_text(time_ms)}, {duration(time_ms - proof.start_ms)} later: then {effect}"
    if (epoch_ms := proof.latest_epoch_ms) is not None and epoch_ms < proof.layout.epoch_ms:
        earlier = replace(proof.layout, epoch_ms=epoch_ms)
        yield (
            f"or an epoch of {time_text(epoch_ms)} or earlier: --to '{layout_spec(earlier)}', which lasts until "
            f"{time_text(earlier.end_ms)}; then all new ids are greater"
        )
    if not proof.distinct and proof.distinct_from_ms is None:
        yield (
            "no later start helps. Use datacenters or worker ids that made no old ids (--old-worker, --datacenter), or "
            "more timestamp bits"
        )


PROOF = Command("proof", _run, _add_arguments)
