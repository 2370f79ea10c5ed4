"""Cut 63 bits into fields; put ids together and take them apart.

Pure arithmetic: no lock, no socket, no logging, no environment. The one look at a clock is
in Layout's constructor, which refuses an epoch in the future. What does not fit is refused.
A little over 400 lines: one class, whose docstrings are the manual, and what it says of times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import TYPE_CHECKING, Any

from snowredis.errors import InvalidId, LayoutError

if TYPE_CHECKING:
    from snowredis.core.columns import Columns

__all__ = ["MAX_ID", "Layout", "Parts", "check_id", "shown", "utc_from_ms", "utc_text"]

# ids stay positive in a signed 64-bit column, so the top bit is never used
ID_BITS = 63
MAX_ID = (1 << ID_BITS) - 1
# 64 namespaces: a worker id's record in Redis keeps one mark for each
MAX_BACKUP_BITS = 6
# the most that a pool keeps; uid-generator and jd-seconds use as many
MAX_WORKER_BITS = 22
# one minute: past it a fleet would wait too long for its next tick to be of use
MAX_TICK_MS = 60_000
# Julian years, 365.25 days
MS_PER_YEAR = 31_557_600_000
# datetime ends with the year 9999
YEAR_10000_MS = 253_402_300_800_000

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDTHS = ("timestamp_bits", "datacenter_bits", "backup_bits", "worker_bits", "sequence_bits")
# name, least, most, why
_RANGES = (
    ("tick_ms", 1, MAX_TICK_MS, "a tick lasts from a millisecond to a minute"),
    ("timestamp_bits", 1, ID_BITS, "without time ids do not grow; 41 bits of 1 ms last 69.7 years"),
    ("datacenter_bits", 0, ID_BITS, "a field cannot have fewer than 0 bits"),
    ("backup_bits", 0, MAX_BACKUP_BITS, "64 namespaces are the most"),
    ("worker_bits", 0, MAX_WORKER_BITS, "4,194,304 worker ids are the most that a pool keeps"),
    ("sequence_bits", 0, ID_BITS, "a field cannot have fewer than 0 bits"),
)


def shown(value: object) -> str:
    """Show *value* in an error message: its repr, shortened; a huge int only by its size."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"<{value.bit_length()}-bit int>"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def utc_from_ms(time_ms: int) -> datetime:
    """Turn Unix ms, 0 or later, into an aware datetime in UTC; LayoutError past the year 9999."""
    if time_ms >= YEAR_10000_MS:
        raise LayoutError(
            f"{time_ms} ms since 1970 lie past the year 9999, which is as far as datetime goes. "
            f"No datetime was made; use timestamp_ms, the plain number."
        )
    return _UNIX_EPOCH + timedelta(milliseconds=time_ms)


def utc_text(time_ms: int) -> str | None:
    """Unix ms as text, such as 2026-11-21T03:16:21.059Z; None past the year 9999."""
    return _utc_text(time_ms, "milliseconds") if time_ms < YEAR_10000_MS else None


def check_id(an_id: object) -> int:
    """Return *an_id* if it is an int in 0 .. 2**63 - 1, else raise InvalidId."""
    if isinstance(an_id, bool) or not isinstance(an_id, int):
        raise InvalidId(
            f"an id is an int, not {type(an_id).__name__} {shown(an_id)}. It was not read; "
            f"pass int(...) of a number, or parse() a text."
        )
    if not 0 <= an_id <= MAX_ID:
        raise InvalidId(
            f"{shown(an_id)} is no id: ids lie in 0 .. {MAX_ID} (2**63 - 1). It was not read; "
            f"check for a sign or for digits that were lost or added."
        )
    return an_id


@dataclass(frozen=True, slots=True)
class Parts:
    """What an id is made of.

    Attributes:
        timestamp_ms: Unix ms at which the id's tick begins.
        datacenter, backup, worker, sequence: the fields; 0 where the layout has no bits for one.
        tick: the timestamp field itself, in ticks since the layout's epoch.
    """

    timestamp_ms: int
    datacenter: int
    backup: int
    worker: int
    sequence: int
    tick: int

    @property
    def time(self) -> datetime:
        """The tick's beginning as an aware datetime in UTC; LayoutError past the year 9999."""
        return utc_from_ms(self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the 63 bits of an id are cut. Immutable, hashable, picklable; equal by value.

    From the top: timestamp, datacenter, backup, worker, sequence. With *worker_last* the
    sequence stands above the worker: ids of one tick are then ordered by sequence first.
    The widths may add up to less than 63; the bits above are then 0.

    Args:
        timestamp_bits: 1 .. 63, ticks since the epoch.
        datacenter_bits: 0 .. 62, a number that people give to a site.
        backup_bits: 0 .. 6; the namespaces a worker moves to when its clock goes back.
        worker_bits: 0 .. 22; 0 means that there is one worker, number 0.
        sequence_bits: 0 .. 62, ids of one worker in one tick.
        tick_ms: length of a tick, 1 .. 60_000 ms.
        epoch_ms: Unix ms of tick 0, from 1970 on; not in the future. This is where the
            constructor looks at the wall clock, once.
        worker_last: put the worker below the sequence, as Sonyflake does.

    Raises:
        LayoutError: a value that is no int, is out of range, or a sum over 63.

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
    # made from the above, once: how far each field stands from the right, and the sum of the widths
    timestamp_shift: int = field(init=False, repr=False, compare=False)
    datacenter_shift: int = field(init=False, repr=False, compare=False)
    backup_shift: int = field(init=False, repr=False, compare=False)
    worker_shift: int = field(init=False, repr=False, compare=False)
    sequence_shift: int = field(init=False, repr=False, compare=False)
    total_bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        shift = 0
        for name, bits in reversed(self.fields):
            object.__setattr__(self, f"{name}_shift", shift)
            shift += bits
        object.__setattr__(self, "total_bits", shift)

    def _check(self) -> None:
        for name in (*_WIDTHS, "tick_ms", "epoch_ms"):
            _require_int(name, getattr(self, name), "No layout was made")
        if type(self.worker_last) is not bool:
            raise LayoutError(
                f"worker_last must be True or False, not {shown(self.worker_last)}. No layout was made."
            )
        widths = [getattr(self, name) for name in _WIDTHS]
        # before the single widths: a sum over 63 has more to say
        if 1 <= self.tick_ms <= MAX_TICK_MS and min(widths) >= 0 and sum(widths) > ID_BITS:
            raise LayoutError(self._too_wide(widths))
        for name, low, high, why in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise LayoutError(
                    f"{name} {shown(value)} is out of range {low} .. {high}: {why}. No layout was made; "
                    f"give a value in that range."
                )
        now_ms = time_ns() // 1_000_000
        if not 0 <= self.epoch_ms <= now_ms:
            when = "before 1970" if self.epoch_ms < 0 else "in the future"
            raise LayoutError(
                f"epoch_ms {shown(self.epoch_ms)} lies {when}, and it is {now_ms} ({_iso(now_ms)}) by this "
                f"host's clock. No layout was made; check the unit, Unix ms, and the clock."
            )

    def _too_wide(self, widths: list[int]) -> str:
        game = "; the preset 'game' works: 27 bits of 10 s / 20 worker / 16 sequence, 42.5 years"
        return (
            f"{' + '.join(map(shown, widths))} = {shown(sum(widths))} bits do not fit in {ID_BITS}, and "
            f"{_bits(self.timestamp_bits)} of {self.tick_ms} ms last "
            f"{_lasting(self.timestamp_bits, self.tick_ms)}. No layout was made; take "
            f"{_bits(sum(widths) - ID_BITS)} away, or make the tick longer and the timestamp narrower"
            f"{game if self.worker_bits >= 16 else ''}."
        )

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Name and width of every field, from the top; zero-width ones too."""
        worker, sequence = ("worker", self.worker_bits), ("sequence", self.sequence_bits)
        return (
            ("timestamp", self.timestamp_bits),
            ("datacenter", self.datacenter_bits),
            ("backup", self.backup_bits),
            *((sequence, worker) if self.worker_last else (worker, sequence)),
        )

    @property
    def workers(self) -> int:
        """How many worker ids there are."""
        return 1 << self.worker_bits

    @property
    def datacenters(self) -> int:
        """How many datacenters there are."""
        return 1 << self.datacenter_bits

    @property
    def namespaces(self) -> int:
        """How many values the backup bits have: the lanes of one worker id."""
        return 1 << self.backup_bits

    @property
    def sequences(self) -> int:
        """How many ids one lane has in one tick."""
        return 1 << self.sequence_bits

    @property
    def sequence_step(self) -> int:
        """How far apart two neighbours of one lane and tick are: 1, or 2**worker_bits with worker_last."""
        return 1 << self.sequence_shift

    @property
    def max_tick(self) -> int:
        """The last tick that fits."""
        return (1 << self.timestamp_bits) - 1

    @property
    def end_ms(self) -> int:
        """The first Unix ms that does not fit any more."""
        return self.epoch_ms + (self.tick_ms << self.timestamp_bits)

    @property
    def end(self) -> datetime | None:
        """``end_ms`` as an aware datetime in UTC, None if that is past the year 9999."""
        return utc_from_ms(self.end_ms) if self.end_ms < YEAR_10000_MS else None

    @property
    def lifetime_years(self) -> float:
        """From the epoch to the end, in years of 365.25 days."""
        return (self.tick_ms << self.timestamp_bits) / MS_PER_YEAR

    @property
    def ids_per_second(self) -> float:
        """The most ids that one worker makes in a second on one lane."""
        return self.sequences * 1000 / self.tick_ms

    def tick_at(self, time_ms: int) -> int:
        """The tick that runs at *time_ms*, in Unix ms; negative before the epoch, not limited to max_tick."""
        return (time_ms - self.epoch_ms) // self.tick_ms

    def ms_at(self, tick: int) -> int:
        """The Unix ms at which *tick* begins."""
        return self.epoch_ms + tick * self.tick_ms

    def first_tick_from(self, time_ms: int) -> int:
        """The first tick that begins at *time_ms*, in Unix ms, or later."""
        return -((self.epoch_ms - time_ms) // self.tick_ms)

    def compose(
        self, *, tick: int, worker: int = 0, sequence: int = 0, datacenter: int = 0, backup: int = 0
    ) -> int:
        """Put an id together: an int in 0 .. 2**63 - 1.

        Raises:
            LayoutError: a value that is no int or does not fit its field; nothing is masked.
        """
        for name, value, bits in (
            ("tick", tick, self.timestamp_bits),
            ("datacenter", datacenter, self.datacenter_bits),
            ("backup", backup, self.backup_bits),
            ("worker", worker, self.worker_bits),
            ("sequence", sequence, self.sequence_bits),
        ):
            _require_int(name, value, "No id was made")
            if value >> bits:  # of a negative number it is negative
                raise LayoutError(
                    f"{name} {shown(value)} is out of range 0 .. {(1 << bits) - 1}: its field has "
                    f"{_bits(bits)} in the layout {self}. No id was made; pass a value that fits, or use a "
                    f"layout with more bits."
                )
        return (
            tick << self.timestamp_shift
            | datacenter << self.datacenter_shift
            | backup << self.backup_shift
            | worker << self.worker_shift
            | sequence << self.sequence_shift
        )

    def decode(self, an_id: int) -> Parts:
        """Take an id apart, 0 .. 2**63 - 1.

        Raises:
            InvalidId: not an int, out of range, or with bits set above this layout's.
        """
        check_id(an_id)
        if an_id >> self.total_bits:
            raise InvalidId(
                f"{an_id} has {_bits(an_id.bit_length())}, the layout {self} only {self.total_bits}. "
                f"It was not read; decode it with the layout that it was made with."
            )
        tick = an_id >> self.timestamp_shift
        return Parts(
            timestamp_ms=self.epoch_ms + tick * self.tick_ms,
            datacenter=an_id >> self.datacenter_shift & ((1 << self.datacenter_bits) - 1),
            backup=an_id >> self.backup_shift & ((1 << self.backup_bits) - 1),
            worker=an_id >> self.worker_shift & ((1 << self.worker_bits) - 1),
            sequence=an_id >> self.sequence_shift & ((1 << self.sequence_bits) - 1),
            tick=tick,
        )

    def decode_many(self, ids: Any) -> Columns:
        """Take many ids apart at once: columns of int64, with numpy if that is installed.

        Args:
            ids: array('q'), numpy integers, any buffer of int64 or of bytes that holds some, or a list of ints.

        Raises:
            InvalidId: as decode(), with the place of the first that cannot be read.
        """
        from snowredis.core.columns import decode_many

        return decode_many(self, ids)

    def id_range(self, start: datetime | int, end: datetime | int) -> tuple[int, int]:
        """The ids of a time window: (low, high) for ``WHERE id >= low AND id < high``.

        Exactly the ids whose decoded time, the beginning of their tick, lies in [start, end).
        A window that reaches past the epoch or the end of the layout is cut there; *high* is
        then at most 2**63, one more than the last id and than a signed 64-bit column holds.

        Args:
            start, end: an aware datetime or Unix ms as an int; start not after end.

        Raises:
            LayoutError: a naive datetime, another type, or start after end.
        """
        start_us, end_us = _micros("start", start), _micros("end", end)
        if start_us > end_us:
            raise LayoutError(
                f"start {shown(start)} lies after end {shown(end)}. No range was made; swap the two."
            )
        return self._first_id_from(start_us), self._first_id_from(end_us)

    def _first_id_from(self, time_us: int) -> int:
        tick = self.first_tick_from(-(-time_us // 1000))
        return min(max(tick, 0), self.max_tick + 1) << self.timestamp_shift

    def describe(self) -> str:
        """Say in several lines, without a newline at the end, what this layout is and how far it goes."""
        cells, top = [], 64
        for name, bits in (("always 0", 64 - self.total_bits), *self.fields):
            if bits:
                places = f"{top - 1}-{top - bits}" if bits > 1 else f"{top - 1}"
                cells.append((name, _bits(bits), places))
                top -= bits
        sizes = [max(map(len, cell)) for cell in cells]
        rule = "+".join(["", *("-" * (size + 2) for size in sizes), ""])
        columns = [[f" {line:<{size}} " for line in cell] for cell, size in zip(cells, sizes, strict=True)]
        rows = ["|".join(["", *row, ""]) for row in zip(*columns, strict=True)]
        end = _iso(self.end_ms) if self.end else "past the year 9999"
        ids = f"{self.ids_per_second:,.12g} per second and worker, {self.sequences:,} at once per tick"
        figures = (
            f"tick         {self.tick_ms:,} ms",
            f"epoch        {_iso(self.epoch_ms)}",
            f"end          {end}, {_lasting(self.timestamp_bits, self.tick_ms)} after the epoch",
            f"datacenters  {self.datacenters:,}",
            f"namespaces   {self.namespaces:,}",
            f"workers      {self.workers:,}",
            f"ids          {ids}",
        )
        return "\n".join([str(self), rule, *rows, rule, *figures])

    def __str__(self) -> str:
        """A short signature, different for layouts that differ."""
        widths = "/".join(str(getattr(self, name)) for name in _WIDTHS)
        last = " worker-last" if self.worker_last else ""
        return f"{widths} tick {self.tick_ms} ms epoch {_iso(self.epoch_ms)}{last}"


def _require_int(name: str, value: object, refused: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise LayoutError(
            f"{name} must be an int, not {type(value).__name__} {shown(value)}. {refused}; pass an int."
        )


def _micros(name: str, moment: datetime | int) -> int:
    """Unix microseconds, the resolution of datetime, so that no rounding moves an id over an edge."""
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise LayoutError(
                f"{name} {moment.isoformat()} has no time zone, so it is no point in time. "
                f"No range was made; say which zone: .replace(tzinfo=UTC), or .astimezone() for local time."
            )
        return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)
    _require_int(f"{name}, if no aware datetime,", moment, "No range was made")
    return moment * 1000


def _iso(time_ms: int) -> str:
    return _utc_text(time_ms, "milliseconds" if time_ms % 1000 else "seconds")


def _utc_text(time_ms: int, precision: str) -> str:
    return utc_from_ms(time_ms).isoformat(timespec=precision).replace("+00:00", "Z")


def _lasting(bits: int, tick_ms: int) -> str:
    ms = tick_ms << min(bits, 64)
    if ms >= MS_PER_YEAR:
        return f"{'over ' if bits > 64 else ''}{ms / MS_PER_YEAR:,.1f} years"
    return f"{ms / 86_400_000:,.1f} days" if ms >= 86_400_000 else f"{ms / 1000:,.3f} s"


def _bits(count: int) -> str:
    return f"{shown(count)} bit{'' if count == 1 else 's'}"
