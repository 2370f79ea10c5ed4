"""Ids in a response body: as JSON, as text, or packed; and the choice by the Accept header.

Ids in JSON are strings: JavaScript loses digits past 2^53.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from typing import Any
from uuid import UUID

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


def encode_any(ids: Sequence[Any], media_type: str, *, one: bool) -> bytes | None:
    """Return the body for ids of any kind, as encode_id() and encode_ids() do; None if they cannot be packed.

    UUIDs and bytes are packed as they are; text cannot be.
    """
    if all(isinstance(an_id, int) for an_id in ids):
        return encode_id(ids[0], media_type) if one else encode_ids(ids, media_type)
    if media_type == BINARY:
        packed = [an_id.bytes if isinstance(an_id, UUID) else an_id for an_id in ids]
        return b"".join(packed) if all(isinstance(each, bytes) for each in packed) else None
    texts = [an_id.hex() if isinstance(an_id, bytes) else str(an_id) for an_id in ids]
    if media_type == TEXT:
        return ("\n".join(texts) + "\n").encode()
    return json.dumps({"id": texts[0]} if one else {"ids": texts}, separators=(",", ":")).encode()


def _parse_accept(accept: str) -> dict[str, float]:
    """Return the quality of each media range in an Accept header: 0 to 1, 0 if it is not valid."""
    qualities: dict[str, float] = {}
    for part in accept.split(",")[:20]:
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        pairs = [parameter.partition("=") for parameter in parameters]
        text = next((value for key, _, value in pairs if key.strip() == "q"), "1")
        try:
            quality = float(text)
        except ValueError:
            quality = 0.0
        qualities.setdefault(name, quality if 0.0 <= quality <= 1.0 else 0.0)
    return qualities


def choose_media_type(accept: str) -> str | None:
    """Return JSON, TEXT or BINARY as an Accept header prefers, the first of equals; None if it accepts none."""
    if not accept.strip():
        return JSON
    qualities = _parse_accept(accept)

    def quality_of(media_type: str) -> float:
        # the most specific range counts (RFC 9110, 12.5.1)
        ranges = (media_type, media_type.partition("/")[0] + "/*", "*/*")
        return next((qualities[name] for name in ranges if name in qualities), 0.0)

    best = max((JSON, TEXT, BINARY), key=quality_of)
    return best if quality_of(best) > 0 else None
