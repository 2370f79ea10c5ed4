"""Responses of the service: the headers of each kind, and the two ways to send one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.responses import Response

from snowredis.web.id_formats import BINARY, JSON, TEXT
from snowredis.web.json_values import to_json
from snowredis.web.problems import Headers

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

PLAIN_HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"Accept"),
]
PAGE_HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # with no-referrer, browsers send "Origin: null" with our own forms too
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_HEADERS: dict[str, Headers] = {
    JSON: [(b"content-type", b"application/json"), *PLAIN_HEADERS],
    TEXT: [(b"content-type", b"text/plain; charset=utf-8"), *PLAIN_HEADERS],
    BINARY: [(b"content-type", b"application/octet-stream"), *PLAIN_HEADERS],
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


def json_response(value: Any, *, status: int = 200, more: Mapping[str, str] | None = None) -> Response:
    """Return *value* as a JSON response."""
    return Response(to_json(value), status, plain_headers() | dict(more or {}), JSON)


def plain_headers() -> dict[str, str]:
    """Return the headers of everything that is not a page, as Starlette takes them."""
    return {name.decode(): value.decode() for name, value in PLAIN_HEADERS}
