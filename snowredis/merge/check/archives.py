"""Check that a .gz or .zst file is complete, since DuckDB reads the beginning of a truncated .zst without an error."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

__all__ = ["ARCHIVE_ERRORS", "is_compressed", "open_text", "truncation"]

# of data that is no archive, or a damaged one
ARCHIVE_ERRORS = (zlib.error, zstandard.ZstdError)
_CHUNK_BYTES = 1 << 20
# gzip format, not zlib
_GZIP_BITS = 31


def is_compressed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed as a whole."""
    return path.suffix.lower() in (".gz", ".zst")


def truncation(path: Path, stopped: Callable[[], bool] = lambda: False) -> str | None:
    """Return what is wrong with a compressed file, or None. Reads all of it, 1 MiB at a time.

    Args:
        stopped: whether to give up; the result then says nothing.
    """
    with path.open("rb") as file:
        try:
            return _check(file, _decompressor_for(path), stopped)
        except ARCHIVE_ERRORS as error:
            return f"it is damaged ({error})"


def _decompressor_for(path: Path) -> Callable[[], Any]:
    if path.suffix.lower() == ".gz":
        return lambda: zlib.decompressobj(_GZIP_BITS)
    return lambda: zstandard.ZstdDecompressor().decompressobj()


def _check(file: BinaryIO, new: Callable[[], Any], stopped: Callable[[], bool]) -> str | None:
    """Decompress one member or frame after the other."""
    member = None
    while not stopped() and (data := file.read(_CHUNK_BYTES)):
        while data:
            member = member or new()
            member.decompress(data)
            if not member.eof:
                break
            data, member = member.unused_data, None
    return None if member is None else "it is truncated: its end is missing"


def open_text(path: Path) -> TextIOWrapper:
    """Open a file, compressed or not, as text; bytes that are not UTF-8 are replaced."""
    match path.suffix.lower():
        case ".gz":
            file: Any = gzip.open(path)  # noqa: SIM115 - closed with the result
        case ".zst":
            file = zstandard.open(path)
        case _:
            file = path.open("rb")
    return TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
