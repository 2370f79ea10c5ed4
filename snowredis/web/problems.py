"""Errors as HTTP responses: status, JSON body, headers."""

from __future__ import annotations

import json

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


class Problem(Exception):
    """A response with a status of 400 or above.

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

    def body(self) -> bytes:
        """Return the JSON object of the response."""
        return json.dumps({"error": self.error, "detail": self.detail}).encode()


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
    wait_ms = 0
    if isinstance(error, PoolExhausted):
        wait_ms = error.next_expiry_ms
    elif isinstance(error, ClockMovedBack):
        wait_ms = error.behind_ms
    retry_after_s = min(60, max(1, -(-wait_ms // 1000))) if status == 503 else 0
    return Problem(status, type(error).__name__, str(error), retry_after_s)
