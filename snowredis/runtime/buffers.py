"""Buffers that ids can be written into."""

from __future__ import annotations

from typing import Any

from snowredis.errors import ConfigError


def as_int64(buffer: Any) -> memoryview:
    """A flat view of *buffer* as int64. Raises ConfigError where ids cannot be written to it as such."""
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ConfigError(f"fill() needs a buffer such as array('q'), not {type(buffer).__name__}") from None
    if view.readonly or not view.c_contiguous:
        raise ConfigError("fill() needs a buffer that is writable and contiguous")
    if not ((view.format in ("q", "l", "Q", "L") and view.itemsize == 8) or view.format in ("B", "b", "c")):
        raise ConfigError(f"fill() needs 8-byte integers (format 'q'), not format {view.format!r}")
    if view.nbytes % 8:
        raise ConfigError(f"fill() needs a multiple of 8 bytes, not {view.nbytes}")
    return view.cast("B").cast("q")
