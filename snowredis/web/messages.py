"""Requests and responses: parameters, media types, bodies of ids, headers, errors as problem details."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from starlette.responses import Response
from starlette.types import Send

from snowredis import errors
from snowredis.core.as_json import to_json
from snowredis.core.layout import MAX_WORKER_BITS, Layout
from snowredis.core.text import parse_user_id

Headers = list[tuple[bytes, bytes]]


# a client that waits for Redis tries again after this
_REDIS_WAIT_MS = 3_000
# corrections of a clock take minutes
_CLOCK_WAIT_MS = 10_000
PROBLEM_JSON = "application/problem+json"
# the highest worker id that any pool can have
MAX_WORKER_ID = (1 << MAX_WORKER_BITS) - 1


class HttpProblem(Exception):
    """A response with a status of 400 or above, as problem details of RFC 9457.

    Attributes:
        status: of HTTP.
        error: a code for programs.
        detail: text for people.
        retry_after_s: when to send the request again; 0 if unknown.
    """

    def __init__(self, status: int, error: str, detail: str, retry_after_s: int = 0) -> None:
        super().__init__(status, error, detail, retry_after_s)
        self.status, self.error, self.detail, self.retry_after_s = status, error, detail, retry_after_s

    def headers(self) -> Headers:
        """Return the headers that belong to the status."""
        headers = [(b"retry-after", str(self.retry_after_s).encode())] if self.retry_after_s else []
        if self.status == 401:
            # browsers ask for a password
            headers += [(b"www-authenticate", b'%b realm="snowredis"' % scheme) for scheme in (b"Bearer", b"Basic")]
        return headers

    def fields(self) -> dict[str, Any]:
        """Return the members of the problem details."""
        return {
            "type": f"urn:problem-type:snowredis:{self.error}",
            # PoolExhausted: "Pool exhausted"
            "title": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.error).capitalize(),
            "status": self.status,
            "detail": self.detail,
            "error": self.error,
        } | ({"retry_after_s": self.retry_after_s} if self.retry_after_s else {})


_BAD_REQUEST = (errors.InvalidId, errors.ConfigError, errors.LayoutError)
# a pool that is not found: Redis has lost it, or it is not created yet
_AWAY = (errors.PoolNotFound, errors.StoreUnavailable, errors.GeneratorClosed)


def problem_of(error: errors.SnowredisError | HttpProblem) -> HttpProblem:
    """Return the response for *error*."""
    if isinstance(error, HttpProblem):
        return error
    code, detail = type(error).__name__, str(error)
    # another code: a tag with other settings, which is no fault of the request
    if isinstance(error, _BAD_REQUEST) and not error.code:
        return HttpProblem(400, code, detail)
    if error.retry or isinstance(error, _AWAY):
        return HttpProblem(503, code, detail, seconds(_wait_ms(error)))
    # errors of segments and dated numbers have a tag, which is closed or exhausted, or has other settings
    return HttpProblem(503 if hasattr(error, "tag") else 500, code, detail)


def seconds(wait_ms: float) -> int:
    """Return a wait for Retry-After: whole seconds, rounded up, at least 1."""
    return max(1, -(-int(wait_ms) // 1000))


def _wait_ms(error: BaseException | None) -> int:
    """Return after which time the same request can succeed."""
    if isinstance(error, errors.LeaseExpired) and isinstance(error.__cause__, errors.PoolExhausted):
        error = error.__cause__
    away = isinstance(error, errors.StoreUnavailable | errors.LeaseExpired | errors.PoolNotFound)
    default_ms = _CLOCK_WAIT_MS if isinstance(error, errors.ClockSkewed) else _REDIS_WAIT_MS if away else 0
    known = (getattr(error, name, None) for name in ("next_expiry_ms", "behind_ms", "wait_ms"))
    return next((int(ms) for ms in known if ms is not None), default_ms)


JSON, TEXT, BINARY = "application/json", "text/plain", "application/octet-stream"
_as_json = json.JSONEncoder(separators=(",", ":")).encode


def encode_ids(ids: Sequence[Any], media_type: str, *, one: bool) -> bytes:
    """Return the body for ids of one kind: an object, one id a line, or their bytes.

    An int has 8 bytes, big-endian; text cannot be packed.

    Args:
        one: whether the response is for a single id: then the object has no list.
    """
    if media_type == BINARY:
        if isinstance(ids[0], int):
            return struct.pack(f">{len(ids)}q", *ids)
        return b"".join(an_id.bytes if isinstance(an_id, UUID) else an_id for an_id in ids)
    if one and media_type == JSON and isinstance(ids[0], int):
        return b'{"id":"%d"}' % ids[0]
    texts = [an_id.hex() if isinstance(an_id, bytes) else str(an_id) for an_id in ids]
    if media_type == TEXT:
        return ("\n".join(texts) + "\n").encode()
    return _as_json({"id": texts[0]} if one else {"ids": texts}).encode()


# clients send few different Accept headers
@lru_cache(maxsize=200)
def choose_media_type(accept: bytes) -> str:
    """Return the one of JSON, TEXT and BINARY that an Accept header prefers; of equal ones that which it names first.

    Raises HttpProblem if it allows none.
    """
    wanted = qualities(accept.decode("latin-1")) or {"*/*": 1.0}
    places = {name: -place for place, name in enumerate(wanted)}

    def rank(media_type: str) -> tuple[float, int]:
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next(((wanted[name], places[name]) for name in ranges if name in wanted), (0.0, 0))

    best = max((JSON, TEXT, BINARY), key=rank)
    if not rank(best)[0]:
        raise HttpProblem(406, "NotAcceptable", f"ids are available as {JSON}, {TEXT} and {BINARY} (big-endian int64)")
    return best


_QUALITY = re.compile(r";\s*q=([01](?:\.\d*)?)\s*(?:;|$)")


def qualities(header: str) -> dict[str, float]:
    """Return the names in a header such as Accept, in its order, with their qualities: 0 is refused, 1 the default."""
    parts = [part for part in header.lower().split(",") if part.strip()]
    found = ((part.partition(";")[0].strip(), _QUALITY.search(part)) for part in parts)
    return {name: float(quality[1]) if quality else 1.0 for name, quality in found}


MAX_ID_TEXT = 100
# ids in one response, and workers in one that names a limit
MAX_COUNT = 10_000
# characters of a filter of workers
MAX_FILTER = 100


def parse_query(query: bytes, *known: str) -> dict[str, str]:
    """Return the value of each name in a query string.

    Raises HttpProblem, also for a name that is given twice or is not *known*: mistyped, it would mean the first pool.
    """
    if not query:
        return {}
    try:
        values = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise HttpProblem(400, "BadQuery", "the query cannot be parsed") from None
    if twice := [name for name, texts in values.items() if len(texts) > 1]:
        raise HttpProblem(400, "BadQuery", f"{twice[0][:40]} is given twice")
    if unknown := [name for name in values if name not in known]:
        detail = f"{unknown[0][:40]!r} is unknown; this path has {', '.join(known)}"
        raise HttpProblem(400, "BadQuery", detail)
    return {name: texts[0] for name, texts in values.items()}


def parse_whole(query: Mapping[str, str], name: str, lowest: int = 1, highest: int = MAX_COUNT) -> int:
    """Return the number *name*: how many ids or workers are requested, or a worker id. Raises HttpProblem."""
    text = query.get(name, "")
    # the length first: int() is slow for megabytes of digits
    if text.isascii() and text.isdecimal() and len(text) < 10 and lowest <= int(text) <= highest:
        return int(text)
    detail = f"{name} must be a whole number from {lowest} to {highest}, not {text[:40]!r}"
    raise HttpProblem(400, f"Bad{name.capitalize()}", detail)


def parse_id(text: str, query: Mapping[str, str], layout: Layout) -> tuple[str, int]:
    """Return the form of *text*, and its id. Raises InvalidId, ConfigError."""
    if len(text) > MAX_ID_TEXT:
        raise errors.InvalidId(f"the text of an id has {MAX_ID_TEXT} characters at most, not {len(text)}")
    form = query["form"][:20] if "form" in query else None
    return parse_user_id(text, layout, form=form)


_COMMON_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
PLAIN_HEADERS = _COMMON_HEADERS | {
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "vary": "Accept",
}
PAGE_HEADERS = _COMMON_HEADERS | {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_CONTENT_TYPES = {JSON: JSON, TEXT: "text/plain; charset=utf-8", BINARY: BINARY, PROBLEM_JSON: PROBLEM_JSON}
# headers in the form of ASGI, by media type
_HEADERS: dict[str, Headers] = {
    media_type: [
        (name.encode(), value.encode()) for name, value in ({"content-type": content_type} | PLAIN_HEADERS).items()
    ]
    for media_type, content_type in _CONTENT_TYPES.items()
}


async def send_body(
    send: Send, body: bytes, *, status: int = 200, media_type: str = JSON, more: Headers | None = None
) -> None:
    """Send a response without Starlette, whose Response costs more than an id."""
    headers = [(b"content-length", b"%d" % len(body)), *_HEADERS[media_type]]
    if more:
        headers += more
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def json_bytes(value: Any) -> bytes:
    """Return *value* as compact JSON, as snowredis.core.as_json says.

    Lists of an object are encoded row by row: json.dumps() keeps all other threads waiting until it returns.
    """
    converted = to_json(value)
    if not isinstance(converted, dict):
        return _dumps(converted).encode()
    members = (
        f"{_dumps(name)}:" + (f"[{','.join(map(_dumps, item))}]" if isinstance(item, list) else _dumps(item))
        for name, item in converted.items()
    )
    return f"{{{','.join(members)}}}".encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def json_response(
    value: Any, *, status: int = 200, more: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """Return *value* as a JSON response."""
    return Response(json_bytes(value), status, PLAIN_HEADERS | dict(more or {}), media_type)
