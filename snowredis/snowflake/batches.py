"""Make many ids at once: as a list, or in a buffer."""

from __future__ import annotations

from typing import Any

from snowredis.core.values import as_int
from snowredis.errors import ConfigError, shown
from snowredis.process.fork import ForkGuard
from snowredis.snowflake.fast_path import FastPath

MAX_BATCH = 1_000_000


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


def next_ids(generator: FastPath, guard: ForkGuard, count: int) -> list[int]:
    """Make *count* ids at once. See SnowflakeGenerator.next_ids()."""
    count = check_count(count)
    while True:
        generation = guard.generation
        batch: list[int] = []
        while len(batch) < count:
            part = generator._take_now(count - len(batch)) or [generator._next_slow()]
            if batch and part[0] < batch[-1]:
                # the clock went back and another namespace is in use: its ids are not in order with those before
                batch.clear()
            batch += part
        if guard.is_still(generation):
            return batch


def fill(generator: FastPath, guard: ForkGuard, buffer: Any) -> None:
    """Fill *buffer* with ids. See SnowflakeGenerator.fill().

    Reads nothing back from the buffer, whose memory others may write to.
    """
    view = as_int64(buffer)
    while True:
        generation, filled, last = guard.generation, 0, 0
        while filled < len(view):
            wanted = view[filled : filled + MAX_BATCH]
            count, first, newest = generator._fill_now(wanted)
            if not count:
                count, first = 1, generator._next_slow()
                wanted[0] = newest = first
            # else the clock went back and another namespace is in use: begin again
            filled = filled + count if first > last else 0
            last = newest if filled else 0
        # else forked in between: some of the ids are the parent's
        if guard.is_still(generation):
            return


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
