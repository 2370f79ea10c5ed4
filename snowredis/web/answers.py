"""What goes over the wire: ids as JSON, text or bytes, and errors with a status that says what to do.

Ids in JSON are strings: JavaScript loses digits past 2^53. Nothing here knows of sockets.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from array import array
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from snowredis.core.layout import Layout, utc_text
from snowredis.core.presets import layout_spec
from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    ConfigError,
    GeneratorClosed,
    GeneratorSuspended,
    InvalidId,
    LayoutError,
    LeaseExpired,
    PoolExhausted,
    PoolNotFound,
    SnowredisError,
    StoreUnavailable,
)

JSON, TEXT, BINARY = "application/json", "text/plain", "application/octet-stream"
# the largest int that JavaScript tells from its neighbours
_SAFE = (1 << 53) - 1
Headers = list[tuple[bytes, bytes]]

# of everything that is not a page
PLAIN_HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"Accept"),
]


class Problem(Exception):
    """An answer that is no 200."""

    def __init__(self, status: int, error: str, detail: str, retry_after_s: int = 0) -> None:
        super().__init__(status, error, detail, retry_after_s)
        self.status, self.error, self.detail, self.retry_after_s = status, error, detail, retry_after_s

    def headers(self) -> Headers:
        found = [(b"retry-after", str(self.retry_after_s).encode())] if self.retry_after_s else []
        if self.status == 401:
            found.append((b"www-authenticate", b'Bearer realm="snowredis"'))
        return found

    def body(self) -> bytes:
        return json.dumps({"error": self.error, "detail": self.detail}).encode()


# the first that fits counts, so kinds stand before what they are kinds of
_STATUS: tuple[tuple[tuple[type[SnowredisError], ...], int], ...] = (
    ((PoolNotFound,), 404),
    ((InvalidId, ConfigError, LayoutError), 400),
    ((StoreUnavailable, PoolExhausted, LeaseExpired, ClockMovedBack, ClockSkewed), 503),
    ((GeneratorClosed, GeneratorSuspended), 503),
)


def problem_of(error: SnowredisError) -> Problem:
    """What a client is told of *error*."""
    status = next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)
    wait_ms = 0
    if isinstance(error, PoolExhausted):
        wait_ms = error.next_expiry_ms
    elif isinstance(error, ClockMovedBack):
        wait_ms = error.behind_ms
    retry_after_s = min(60, max(1, -(-wait_ms // 1000))) if status == 503 else 0
    return Problem(status, type(error).__name__, str(error), retry_after_s)


# --- ids -------------------------------------------------------------------------------------------


def one_id(an_id: int, kind: str) -> bytes:
    if kind == JSON:
        return b'{"id":"%d"}' % an_id
    if kind == TEXT:
        return b"%d\n" % an_id
    return an_id.to_bytes(8, "big", signed=True)


def many_ids(ids: Sequence[int], kind: str) -> bytes:
    if kind == JSON:
        return b'{"ids":["%s"]}' % '","'.join(map(str, ids)).encode()
    if kind == TEXT:
        return ("\n".join(map(str, ids)) + "\n").encode()
    packed = array("q", ids)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


# --- which kind ------------------------------------------------------------------------------------


class Offer(NamedTuple):
    """A media range of an Accept header."""

    media: str
    quality: float


def _offers(accept: str) -> list[Offer]:
    found = []
    for part in accept.split(",")[:20]:
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found.append(Offer(media, quality if 0.0 <= quality <= 1.0 else 0.0))
    return found


def kind_of(accept: str) -> str | None:
    """Which of JSON, TEXT and BINARY an Accept header asks for, JSON if it is all the same; None: none of them."""
    if not accept.strip():
        return JSON
    offers = _offers(accept)
    best, best_quality = None, 0.0
    for kind in (JSON, TEXT, BINARY):
        # the most exact range counts, as RFC 9110 12.5.1 says
        for name in (kind, kind.partition("/")[0] + "/*", "*/*"):
            given = [offer.quality for offer in offers if offer.media == name]
            if given:
                if given[0] > best_quality:
                    best, best_quality = kind, given[0]
                break
    return best


# --- everything else -------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """*value* for JSON: dataclasses by field, layouts as specs, ints that JavaScript cannot hold as strings.

    Fields whose name has "token" in it are left out: even a hash of one is nobody's business.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, int):
        return value if -_SAFE <= value <= _SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Layout):
        return layout_spec(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names if _may_be_told(name)}
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items() if _may_be_told(str(name))}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def _may_be_told(name: str) -> bool:
    return "token" not in name and name not in ("renewal_id", "signature")


def as_json(value: Any) -> bytes:
    return json.dumps(plain(value), separators=(",", ":")).encode()


def id_as_json(layout: Layout, an_id: int, form: str = "decimal") -> dict[str, Any]:
    """An id taken apart. Raises InvalidId."""
    parts = layout.decode(an_id)
    text, at, bits = f"{an_id:0{layout.total_bits}b}", 0, []
    for name, width in layout.fields:
        if width:
            field = text[at : at + width]
            bits.append({"name": name, "bits": field, "value": str(int(field, 2))})
            at += width
    from snowredis.core.text import FORMS, encode

    forms = {}
    for other in FORMS:
        try:
            forms[other] = encode(an_id, other, layout=layout)
        except LayoutError:
            # a time past the year 9999 has no friendly form
            continue
    return {
        "id": str(an_id),
        "form": form,
        # none past the year 9999
        "time": utc_text(parts.timestamp_ms),
        "timestamp_ms": parts.timestamp_ms,
        "tick": str(parts.tick),
        "datacenter": parts.datacenter,
        "backup": parts.backup,
        "worker": parts.worker,
        "sequence": parts.sequence,
        "fields": bits,
        "forms": forms,
        "layout": layout_spec(layout),
    }
