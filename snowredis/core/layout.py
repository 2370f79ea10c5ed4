"""Layout: how the 63 bits of an id are divided into fields; compose and decode ids.

Pure arithmetic: no lock, no socket, no logging, no environment. The wall clock is read once, in Layout's constructor,
which refuses an epoch in the future. Values that do not fit are refused, never masked.
A little over 400 lines: one class, whose docstrings are its manual. The text form of layouts, which layout_spec()
writes, is stored in Redis as part of a pool's signature, so it must never change for a given layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import time_ns
from typing import NamedTuple

from snowredis.core.values import (
    ID_BITS,
    MAX_ID,
    MS_PER_YEAR,
    YEAR_10000_MS,
    as_int,
    bits_text,
    check_id,
    duration,
    iso_text,
    micros_of,
    require_int,
    utc_from_ms,
)
from snowredis.errors import InvalidId, LayoutError, shown

# 64 namespaces: a worker id's record in Redis has one mark for each
MAX_BACKUP_BITS = 6
# the most that a pool supports; uid-generator and jd-seconds use as many
MAX_WORKER_BITS = 22
# one minute: with longer ticks a fleet would wait too long for the next one
MAX_TICK_MS = 60_000
# 2026-11-01T00:00:00Z
WRITTEN_MS = 1793491200000
WIDTHS = ("timestamp_bits", "datacenter_bits", "backup_bits", "worker_bits", "sequence_bits")
# name, minimum, maximum, reason
_RANGES = (
    ("tick_ms", 1, MAX_TICK_MS, "a tick lasts from a millisecond to a minute"),
    ("timestamp_bits", 1, ID_BITS, "ids without a timestamp are not time-ordered; 41 bits of 1 ms last 69.7 years"),
    ("datacenter_bits", 0, ID_BITS, "a field cannot have fewer than 0 bits"),
    ("backup_bits", 0, MAX_BACKUP_BITS, "there are at most 64 namespaces"),
    ("worker_bits", 0, MAX_WORKER_BITS, "a pool has at most 4,194,304 worker ids"),
    ("sequence_bits", 0, ID_BITS, "a field cannot have fewer than 0 bits"),
    ("gene_bits", 0, 16, "65,536 shards are the most that a gene is for"),
)
# what no part of the datacenter is called
_NOT_NAMES = {"gene", *(width.removesuffix("_bits") for width in WIDTHS)}


class Parts(NamedTuple):
    """Fields of one id.

    Attributes:
        timestamp_ms: Unix ms at which the id's tick starts.
        datacenter, backup, worker, sequence: the fields; 0 where the layout has no bits for it.
        tick: the timestamp field itself, in ticks since the layout's epoch.
        gene: the lowest bits, of the key that the id was made with.
        datacenter_fields: name and value of each part of the datacenter that the layout names.
    """

    timestamp_ms: int
    datacenter: int
    backup: int
    worker: int
    sequence: int
    tick: int
    gene: int = 0
    datacenter_fields: tuple[tuple[str, int], ...] = ()

    @property
    def fields(self) -> dict[str, int]:
        """Value of each part of the datacenter that the layout names."""
        return dict(self.datacenter_fields)

    @property
    def time(self) -> datetime:
        """Start of the tick as an aware datetime in UTC; LayoutError past the year 9999."""
        return utc_from_ms(self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Division of the 63 bits of an id into fields. Immutable, hashable, picklable; compared by value.

    From the most significant bit: timestamp, datacenter, backup, worker, sequence, gene. With *worker_last* the worker
    is below the sequence, so that the ids of one tick are ordered by sequence first. The widths may add up to less than
    63; the remaining top bits are 0.

    Args:
        timestamp_bits: 1 .. 63; ticks since the epoch.
        datacenter_bits: 0 .. 62; a number that operators assign to a site.
        backup_bits: 0 .. 6; the namespaces a worker moves to when its clock goes back.
        worker_bits: 0 .. 22; with 0 there is one worker id, 0.
        sequence_bits: 0 .. 62; ids of one worker in one tick.
        tick_ms: length of a tick, 1 .. 60_000 ms.
        epoch_ms: Unix ms of tick 0, not in the future: the constructor reads the wall clock once to check that.
        worker_last: put the worker below the sequence, as Sonyflake does.
        gene_bits: 0 .. 16; the lowest bits, which ``next_id(gene=key)`` takes from a key.
        datacenter_fields: name and width of the parts of the datacenter, from the most significant; they add up to
            *datacenter_bits*, which may be left out then.

    Raises:
        LayoutError: a value that is not an int or out of range, or a sum over 63.

    Source:
        field order: Twitter Snowflake (2010), IdWorker.scala; worker_last: sony/sonyflake (2014).
    """

    timestamp_bits: int = 41
    datacenter_bits: int = 0
    backup_bits: int = 2
    worker_bits: int = 10
    sequence_bits: int = 10
    tick_ms: int = 1
    epoch_ms: int = 1735689600000
    worker_last: bool = False
    gene_bits: int = 0
    datacenter_fields: tuple[tuple[str, int], ...] = ()
    # computed once: how many bits are to the right of each field, and the sum of the widths
    timestamp_shift: int = field(init=False, repr=False, compare=False)
    datacenter_shift: int = field(init=False, repr=False, compare=False)
    backup_shift: int = field(init=False, repr=False, compare=False)
    worker_shift: int = field(init=False, repr=False, compare=False)
    sequence_shift: int = field(init=False, repr=False, compare=False)
    gene_shift: int = field(init=False, repr=False, compare=False, default=0)
    total_bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.datacenter_fields:
            # loaded only for layouts that have them
            from snowredis.core.datacenter_fields import checked

            parts, bits = checked(self.datacenter_fields, self.datacenter_bits, not_names=_NOT_NAMES)
            object.__setattr__(self, "datacenter_fields", parts)
            object.__setattr__(self, "datacenter_bits", bits)
        self._check()
        shift = 0
        for name, bits in reversed(self.fields):
            object.__setattr__(self, f"{name}_shift", shift)
            shift += bits
        object.__setattr__(self, "total_bits", shift)

    def _check(self) -> None:
        for name in (*WIDTHS, "gene_bits", "tick_ms", "epoch_ms"):
            value = require_int(name, getattr(self, name), "No layout was made")
            object.__setattr__(self, name, value)
        if type(self.worker_last) is not bool:
            raise LayoutError(f"worker_last must be True or False, not {shown(self.worker_last)}. No layout was made.")
        widths = [getattr(self, name) for name in WIDTHS] + [self.gene_bits] * bool(self.gene_bits)
        # checked before the single widths: its message says more
        if 1 <= self.tick_ms <= MAX_TICK_MS and min(widths) >= 0 and sum(widths) > ID_BITS:
            raise LayoutError(self._too_wide(widths))
        for name, low, high, why in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise LayoutError(
                    f"{name} {shown(value)} is out of range {low} .. {high}: {why}. No layout was made; "
                    f"give a value in that range."
                )
        # a clock that shows a time before this code was written is wrong, or a test has frozen it
        now_ms = max(time_ns() // 1_000_000, WRITTEN_MS)
        if not 0 <= self.epoch_ms <= now_ms:
            when = "before 1970" if self.epoch_ms < 0 else "in the future"
            raise LayoutError(
                f"epoch_ms {shown(self.epoch_ms)} is {when}; this host's clock shows {now_ms} ({iso_text(now_ms)}). "
                f"No layout was made; check the unit (Unix ms) and the clock."
            )

    def _too_wide(self, widths: list[int]) -> str:
        game = "; the preset 'game' works: 27 bits of 10 s / 20 worker / 16 sequence, 42.5 years"
        over = "over " if self.timestamp_bits > ID_BITS else ""
        return (
            f"{' + '.join(map(shown, widths))} = {shown(sum(widths))} bits do not fit in {ID_BITS}, and "
            f"{bits_text(self.timestamp_bits)} of {self.tick_ms} ms last "
            f"{over}{duration(self.tick_ms << min(self.timestamp_bits, ID_BITS))}. No layout was made; remove "
            f"{bits_text(sum(widths) - ID_BITS)}, or make the tick longer and the timestamp narrower"
            f"{game if self.worker_bits >= 16 else ''}."
        )

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Name and width of every field, from the most significant; including those of width 0."""
        worker, sequence = ("worker", self.worker_bits), ("sequence", self.sequence_bits)
        return (
            ("timestamp", self.timestamp_bits),
            ("datacenter", self.datacenter_bits),
            ("backup", self.backup_bits),
            *((sequence, worker) if self.worker_last else (worker, sequence)),
            *([("gene", self.gene_bits)] if self.gene_bits else []),
        )

    @property
    def workers(self) -> int:
        """Number of worker ids."""
        return 1 << self.worker_bits

    @property
    def datacenters(self) -> int:
        """Number of datacenters."""
        return 1 << self.datacenter_bits

    @property
    def namespaces(self) -> int:
        """Number of namespaces: values of the backup bits, lanes of one worker id."""
        return 1 << self.backup_bits

    @property
    def sequences(self) -> int:
        """Number of ids that one lane has in one tick."""
        return 1 << self.sequence_bits

    @property
    def sequence_step(self) -> int:
        """Difference of two consecutive ids of one lane and tick: 1, but for worker_last and genes."""
        return 1 << self.sequence_shift

    @property
    def max_tick(self) -> int:
        """Last tick that fits the timestamp field."""
        return (1 << self.timestamp_bits) - 1

    @property
    def end_ms(self) -> int:
        """First Unix ms that no longer fits the timestamp field."""
        return self.epoch_ms + (self.tick_ms << self.timestamp_bits)

    @property
    def end(self) -> datetime | None:
        """``end_ms`` as an aware datetime in UTC; None past the year 9999."""
        return utc_from_ms(self.end_ms) if self.end_ms < YEAR_10000_MS else None

    @property
    def lifetime_years(self) -> float:
        """Time from the epoch to the end, in years of 365.25 days."""
        return (self.tick_ms << self.timestamp_bits) / MS_PER_YEAR

    @property
    def ids_per_second(self) -> float:
        """Maximum number of ids that one worker can make in a second on one lane."""
        return self.sequences * 1000 / self.tick_ms

    def tick_at(self, time_ms: int) -> int:
        """Return the tick that contains *time_ms*, Unix ms; negative before the epoch, not limited to max_tick."""
        return (time_ms - self.epoch_ms) // self.tick_ms

    def ms_at(self, tick: int) -> int:
        """Return the Unix ms at which *tick* starts."""
        return self.epoch_ms + tick * self.tick_ms

    def first_tick_from(self, time_ms: int) -> int:
        """Return the first tick that starts at *time_ms*, Unix ms, or later."""
        return -((self.epoch_ms - time_ms) // self.tick_ms)

    def compose(
        self, *, tick: int, worker: int = 0, sequence: int = 0, datacenter: int = 0, backup: int = 0, gene: int = 0
    ) -> int:
        """Return the id with these fields: an int in 0 .. 2**63 - 1.

        Raises:
            LayoutError: a value that is not an int or does not fit its field; nothing is masked.
        """
        an_id = 0
        for name, value, bits, shift in (
            ("tick", tick, self.timestamp_bits, self.timestamp_shift),
            ("datacenter", datacenter, self.datacenter_bits, self.datacenter_shift),
            ("backup", backup, self.backup_bits, self.backup_shift),
            ("worker", worker, self.worker_bits, self.worker_shift),
            ("sequence", sequence, self.sequence_bits, self.sequence_shift),
            ("gene", gene, self.gene_bits, 0),
        ):
            number = require_int(name, value, "No id was made")
            if number >> bits:  # true for negative numbers too
                raise LayoutError(
                    f"{name} {shown(number)} is out of range 0 .. {(1 << bits) - 1}: its field has "
                    f"{bits_text(bits)} in the layout {self}. No id was made; pass a value that fits, or use a "
                    f"layout with more bits."
                )
            an_id |= number << shift
        return an_id

    def decode(self, an_id: int) -> Parts:
        """Return the fields of an id, 0 .. 2**63 - 1.

        A numpy array of many *ids* needs no function: their times in ms since 1970 are
        ``(ids >> layout.timestamp_shift) * layout.tick_ms + layout.epoch_ms``, and their worker ids
        ``ids >> layout.worker_shift & layout.workers - 1``.

        Raises:
            InvalidId: not an int, out of range, or with bits set above this layout's.
        """
        an_id = check_id(an_id)
        if an_id >> self.total_bits:
            raise InvalidId(
                f"{an_id} has {bits_text(an_id.bit_length())}, but the layout {self} has only {self.total_bits}. "
                f"Decode it with the layout that it was made with."
            )
        tick = an_id >> self.timestamp_shift
        datacenter = an_id >> self.datacenter_shift & ((1 << self.datacenter_bits) - 1)
        return Parts(
            timestamp_ms=self.epoch_ms + tick * self.tick_ms,
            datacenter=datacenter,
            backup=an_id >> self.backup_shift & ((1 << self.backup_bits) - 1),
            worker=an_id >> self.worker_shift & ((1 << self.worker_bits) - 1),
            sequence=an_id >> self.sequence_shift & ((1 << self.sequence_bits) - 1),
            tick=tick,
            gene=an_id & ((1 << self.gene_bits) - 1),
            datacenter_fields=self._datacenter_fields(datacenter) if self.datacenter_fields else (),
        )

    def _datacenter_fields(self, datacenter: int) -> tuple[tuple[str, int], ...]:
        from snowredis.core.datacenter_fields import decompose

        return decompose(self.datacenter_fields, datacenter)

    def datacenter_of(self, fields: Mapping[str, int]) -> int:
        """Return the datacenter with these values of the parts that *datacenter_fields* names; all have to be given.

        Raises LayoutError: a name that is missing or unknown, or a value that is not an int or does not fit.
        """
        from snowredis.core.datacenter_fields import compose

        return compose(self.datacenter_fields, fields, str(self))

    def gene_of(self, key: int | str | bytes) -> int:
        """Return the gene of a key: the last *gene_bits* bits of SHA-256 of its bytes. It never changes.

        The bytes of a str are its UTF-8, those of an int its decimal digits: 42 and "42" have the same gene.

        Raises LayoutError: the layout has no gene bits, or *key* is none of these types.
        """
        if not self.gene_bits:
            raise LayoutError(f"the layout {self} has no gene bits. Use one with gene_bits.")
        try:
            text = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else b"%d" % as_int(key)
        except TypeError:
            raise LayoutError(
                f"a gene's key must be an int, str or bytes, not {type(key).__name__} {shown(key)}. No id was made."
            ) from None
        return int.from_bytes(hashlib.sha256(text).digest()[-8:], "big") & ((1 << self.gene_bits) - 1)

    def id_range(self, start: datetime | int, end: datetime | int) -> tuple[int, int]:
        """Return (low, high) for ``WHERE id >= low AND id < high``: the ids of a period of time.

        These are exactly the ids whose decoded time, the start of their tick, is in [start, end). A period that begins
        before the epoch or ends after the layout does is clipped. *high* is at most 2**63 - 1, which a column
        of 64 bits holds; the id 2**63 - 1 itself is in no period.

        Args:
            start, end: an aware datetime or Unix ms as an int; start not after end.

        Raises:
            LayoutError: a naive datetime, another type, or start after end.
        """
        start_us, end_us = micros_of("start", start), micros_of("end", end)
        if start_us > end_us:
            raise LayoutError(f"start {shown(start)} is after end {shown(end)}. Swap the two.")
        return self._first_id_from(start_us), self._first_id_from(end_us)

    def _first_id_from(self, time_us: int) -> int:
        tick = self.first_tick_from(-(-time_us // 1000))
        return min(min(max(tick, 0), self.max_tick + 1) << self.timestamp_shift, MAX_ID)

    def describe(self) -> str:
        """Return a description of several lines: bit diagram, lifetime, capacity. No newline at the end."""
        cells, top = [], 64
        for name, bits in (("always 0", 64 - self.total_bits), *self.fields):
            if bits:
                places = f"{top - 1}-{top - bits}" if bits > 1 else f"{top - 1}"
                cells.append((name, bits_text(bits), places))
                top -= bits
        sizes = [max(map(len, cell)) for cell in cells]
        rule = "+".join(["", *("-" * (size + 2) for size in sizes), ""])
        columns = [[f" {line:<{size}} " for line in cell] for cell, size in zip(cells, sizes, strict=True)]
        rows = ["|".join(["", *row, ""]) for row in zip(*columns, strict=True)]
        end = iso_text(self.end_ms) if self.end else "past the year 9999"
        ids = f"{self.ids_per_second:,.12g} per second and worker, {self.sequences:,} at once per tick"
        figures = (
            f"tick         {self.tick_ms:,} ms",
            f"epoch        {iso_text(self.epoch_ms)}",
            f"end          {end}, {duration(self.tick_ms << self.timestamp_bits)} after the epoch",
            f"datacenters  {self.datacenters:,}",
            f"namespaces   {self.namespaces:,}",
            f"workers      {self.workers:,}",
            f"ids          {ids}",
        )
        return "\n".join([str(self), rule, *rows, rule, *figures])

    def __str__(self) -> str:
        """Return a short text, different for different layouts."""
        widths = "/".join(str(getattr(self, name)) for name in WIDTHS)
        last = " worker-last" if self.worker_last else ""
        gene = f" gene {self.gene_bits}" if self.gene_bits else ""
        parts = "".join(f" {name}:{bits}" for name, bits in self.datacenter_fields)
        return f"{widths} tick {self.tick_ms} ms epoch {iso_text(self.epoch_ms)}{last}{gene}{parts}"


def layout_spec(layout: Layout) -> str:
    """Return the full text form of a layout, which resolve_layout() of presets.py parses; one text per layout."""
    named = ",".join(f"{name}:{bits}" for name, bits in layout.datacenter_fields)
    gene = f";gene_bits={layout.gene_bits}" if layout.gene_bits else ""
    return (
        f"{layout.timestamp_bits}/{named or layout.datacenter_bits}/{layout.backup_bits}/{layout.worker_bits}/"
        f"{layout.sequence_bits};tick_ms={layout.tick_ms};epoch_ms={layout.epoch_ms};"
        f"worker_last={int(layout.worker_last)}{gene}"
    )
