"""Responses of the service: headers of ids, data and pages, and the two ways to send a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from snowredis.web.id_formats import BINARY, JSON, TEXT
from snowredis.web.json_values import to_json
from snowredis.web.problems import PROBLEM_JSON, Headers
from snowredis.web.shared_reads import Answer

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

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
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # with no-referrer, browsers send "Origin: null" with our own forms too
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# of data that one look at Redis makes for many requests: a client may keep it, and asks whether it is still current
_SHARED_HEADERS = PLAIN_HEADERS | {"cache-control": "private, no-cache", "vary": "Accept-Encoding"}
_CONTENT_TYPES = {JSON: JSON, TEXT: "text/plain; charset=utf-8", BINARY: BINARY, PROBLEM_JSON: PROBLEM_JSON}
# as ASGI takes them, by media type
_HEADERS: dict[str, Headers] = {
    media_type: [
        (name.encode(), value.encode())
        for name, value in ({"content-type": content_type} | PLAIN_HEADERS).items()
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


def json_response(
    value: Any, *, status: int = 200, more: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """Return *value* as a JSON response."""
    return Response(to_json(value), status, PLAIN_HEADERS | dict(more or {}), media_type)


def shared_response(request: Request, answer: Answer, *, media_type: str = JSON) -> Response:
    """Return *answer* in the form that the client accepts; 304 if it has it already."""
    headers = _SHARED_HEADERS | {"etag": answer.etag}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if answer.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    if answer.gzipped is not None and _accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(answer.gzipped, headers=headers | {"content-encoding": "gzip"}, media_type=media_type)
    return Response(answer.body, headers=headers, media_type=media_type)


def _accepts_gzip(header: str) -> bool:
    for part in header.split(",")[:20]:
        name, _, quality = part.strip().lower().partition(";")
        if name.strip() in {"gzip", "*"}:
            return quality.strip().removeprefix("q=") not in {"0", "0.0", "0.00", "0.000"}
    return False
