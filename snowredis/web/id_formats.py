"""Ids in a response body: as JSON, as text, or packed; and the choice by the Accept header.

Ids in JSON are strings: JavaScript loses digits past 2^53.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

JSON, TEXT, BINARY = "application/json", "text/plain", "application/octet-stream"


def encode_id(an_id: int, media_type: str) -> bytes:
    """Return the body for one id: an object, a line, or 8 bytes, big-endian."""
    if media_type == JSON:
        return b'{"id":"%d"}' % an_id
    if media_type == TEXT:
        return b"%d\n" % an_id
    return an_id.to_bytes(8, "big", signed=True)


def encode_ids(ids: Sequence[int], media_type: str) -> bytes:
    """Return the body for several ids: an object, one id a line, or 8 bytes an id, big-endian."""
    if media_type == JSON:
        return b'{"ids":["%s"]}' % '","'.join(map(str, ids)).encode()
    if media_type == TEXT:
        return ("\n".join(map(str, ids)) + "\n").encode()
    packed = array("q", ids)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


class _MediaRange(NamedTuple):
    """One entry of an Accept header."""

    name: str
    quality: float


def _media_ranges(accept: str) -> list[_MediaRange]:
    ranges = []
    for part in accept.split(",")[:20]:
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        ranges.append(_MediaRange(name, quality if 0.0 <= quality <= 1.0 else 0.0))
    return ranges


def choose_media_type(accept: str) -> str | None:
    """Return JSON, TEXT or BINARY as an Accept header prefers, the first of equals; None if it accepts none."""
    if not accept.strip():
        return JSON
    ranges = _media_ranges(accept)
    best, best_quality = None, 0.0
    for media_type in (JSON, TEXT, BINARY):
        # the most specific range counts (RFC 9110, 12.5.1)
        for name in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
            quality = next((one.quality for one in ranges if one.name == name), None)
            if quality is not None:
                if quality > best_quality:
                    best, best_quality = media_type, quality
                break
    return best
