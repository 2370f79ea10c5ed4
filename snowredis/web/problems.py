"""Errors as HTTP responses: status, JSON body, headers."""

from __future__ import annotations

import json
import re
from typing import Any

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

Headers = list[tuple[bytes, bytes]]


# a client that waits for Redis tries again after this
_REDIS_WAIT_MS = 3_000
# corrections of a clock take minutes
_CLOCK_WAIT_MS = 10_000
PROBLEM_JSON = "application/problem+json"


class Problem(Exception):
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
            headers.append((b"www-authenticate", b'Bearer realm="snowredis"'))
        if self.status == 413:
            # the rest of the request is not read
            headers.append((b"connection", b"close"))
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

    def body(self) -> bytes:
        """Return the JSON object of the response."""
        return json.dumps(self.fields()).encode()


def too_many_requests(detail: str) -> Problem:
    """Return the response to a request above a rate limit."""
    return Problem(429, "TooManyRequests", detail, 1)


# the first match counts, so subclasses come before their base
_STATUS: tuple[tuple[tuple[type[SnowredisError], ...], int], ...] = (
    ((PoolNotFound,), 404),
    ((InvalidId, ConfigError, LayoutError), 400),
    ((StoreUnavailable, PoolExhausted, LeaseExpired, ClockMovedBack, ClockSkewed), 503),
    ((GeneratorClosed, GeneratorSuspended), 503),
)


def problem_of(error: SnowredisError | Problem) -> Problem:
    """Return the response for *error*."""
    if isinstance(error, Problem):
        return error
    status = next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)
    if status == 500 and hasattr(error, "tag"):
        # of segments and dated numbers: their tag is closed, exhausted, or has other settings
        return Problem(503, type(error).__name__, str(error), seconds(_wait_ms(error)) if error.retry else 0)
    retry_after_s = seconds(_wait_ms(error)) if status == 503 else 0
    return Problem(status, type(error).__name__, str(error), retry_after_s)


def seconds(wait_ms: float) -> int:
    """Return a wait for Retry-After: whole seconds, rounded up, at least 1."""
    return max(1, -(-int(wait_ms) // 1000))


def _wait_ms(error: BaseException) -> int:
    """Return after which time the same request can succeed."""
    if isinstance(error, PoolExhausted):
        return error.next_expiry_ms
    if isinstance(error, ClockMovedBack):
        return error.behind_ms
    if isinstance(error, ClockSkewed):
        return _CLOCK_WAIT_MS
    if isinstance(error, LeaseExpired) and isinstance(error.__cause__, PoolExhausted):
        return error.__cause__.next_expiry_ms
    if isinstance(error, StoreUnavailable | LeaseExpired):
        return _REDIS_WAIT_MS
    return int(getattr(error, "wait_ms", 0))
