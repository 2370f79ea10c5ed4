"""Values that callers give and messages show: whole numbers of any type, ids, moments, and times as text."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any

from snowredis.errors import ConfigError, InvalidId, LayoutError, shown

# Julian years, 365.25 days
MS_PER_YEAR = 31_557_600_000
# datetime ends with the year 9999
YEAR_10000_MS = 253_402_300_800_000
# ids stay positive in a signed 64-bit column, so the top bit is never used
ID_BITS = 63
MAX_ID = (1 << ID_BITS) - 1
# ids that can be asked for at once
MAX_BATCH = 1_000_000
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_int(value: Any) -> int:
    """Return a whole number of any type as an int. Raises TypeError, also for a bool."""
    if isinstance(value, bool):
        raise TypeError("a bool is not a number")
    return operator.index(value)


def require_int(name: str, value: object, refused: str) -> int:
    """Return *value*, a whole number of any type, as an int. Raises LayoutError if it is none."""
    try:
        return as_int(value)
    except TypeError:
        raise LayoutError(
            f"{name} must be an int, not {type(value).__name__} {shown(value)}. {refused}; pass an int."
        ) from None


def check_count(count: int) -> int:
    """Return *count* as an int. Raises TypeError if it is no whole number, ConfigError if it is out of range."""
    refusal = f"next_ids({shown(count)}): a whole number from 0 to {MAX_BATCH} can be asked for at once"
    try:
        number = as_int(count)
    except TypeError:
        raise TypeError(refusal) from None
    if not 0 <= number <= MAX_BATCH:
        raise ConfigError(refusal)
    return number


def as_int64(buffer: Any) -> memoryview:
    """Return a flat view of *buffer* as int64. Raises ConfigError for a buffer that cannot have ids written to it."""
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        # ValueError: a file that was closed, a view that was released
        raise ConfigError(
            f"fill() needs a buffer such as array('q'), not this {type(buffer).__name__}: {shown(str(error))}"
        ) from None
    if view.readonly or not view.c_contiguous:
        raise ConfigError("fill() needs a buffer that is writable and contiguous")
    if not ((view.format in ("q", "l", "Q", "L") and view.itemsize == 8) or view.format in ("B", "b", "c")):
        raise ConfigError(f"fill() needs 8-byte integers (format 'q'), not format {view.format!r}")
    if view.nbytes % 8:
        raise ConfigError(f"fill() needs a multiple of 8 bytes, not {view.nbytes}")
    if not view.nbytes:
        # cast() refuses a shape with a zero
        return memoryview(bytearray()).cast("q")
    return view.cast("B").cast("q")


def check_id(an_id: object) -> int:
    """Return *an_id*, a whole number of any type, as an int in 0 .. 2**63 - 1; raises InvalidId if it is none."""
    try:
        number = as_int(an_id)
    except TypeError:
        raise InvalidId(
            f"an id must be an int, not {type(an_id).__name__} {shown(an_id)}. Convert a number with "
            f"int(...), or a text with parse()."
        ) from None
    if not 0 <= number <= MAX_ID:
        raise InvalidId(
            f"{shown(number)} is not a valid id: ids are in 0 .. {MAX_ID} (2**63 - 1). Check for a sign, and for "
            f"missing or extra digits."
        )
    return number


def utc_from_ms(time_ms: int) -> datetime:
    """Return Unix ms, 0 or later, as an aware datetime in UTC; LayoutError past the year 9999."""
    if time_ms >= YEAR_10000_MS:
        raise LayoutError(
            f"{time_ms} ms since 1970 are past the year 9999, the last that datetime supports. "
            f"Use timestamp_ms, the plain number."
        )
    return _UNIX_EPOCH + timedelta(milliseconds=time_ms)


def time_text(time_ms: int) -> str:
    """Return Unix ms as text for people, for example 2026-11-21T03:16:21.059Z, whatever the number is."""
    if time_ms >= YEAR_10000_MS:
        return "past the year 9999"
    # events are untrusted, and may say a negative one
    return _utc_text(time_ms, "milliseconds") if time_ms >= 0 else f"{time_ms} ms"


def iso_text(time_ms: int) -> str:
    return _utc_text(time_ms, "milliseconds" if time_ms % 1000 else "seconds")


def _utc_text(time_ms: int, precision: str) -> str:
    return utc_from_ms(time_ms).isoformat(timespec=precision).replace("+00:00", "Z")


def micros_of(name: str, moment: datetime | int) -> int:
    """Return Unix microseconds, the resolution of datetime, so that rounding cannot move an id over a boundary."""
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise LayoutError(
                f"{name} {moment.isoformat()} has no time zone. "
                f"Add one: .replace(tzinfo=UTC), or .astimezone() for local time."
            )
        return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)
    return 1000 * require_int(f"{name}, if no aware datetime,", moment, "No range was made")


def duration(ms: float) -> str:
    """Return a duration in a short form: 3.4 s, 12.0 min, 5.2 h, 3.0 days."""
    for unit, unit_ms in (("s", 1000), ("min", 60_000), ("h", 3_600_000)):
        if abs(ms) < 60 * unit_ms and (unit != "h" or abs(ms) < 48 * unit_ms):
            return f"{ms / unit_ms:.1f} {unit}"
    days = ms / 86_400_000
    return f"{days:,.1f} days" if abs(days) < 730 else f"{days / 365.25:,.1f} years"


def bits_text(count: int) -> str:
    """Return "1 bit", "2 bits" …"""
    return f"{shown(count)} bit{'' if count == 1 else 's'}"
