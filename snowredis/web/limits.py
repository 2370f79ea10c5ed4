"""Limits of one process of the service: sizes, rates, concurrency. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from snowredis.errors import ConfigError
from snowredis.snowflake.batches import MAX_BATCH


def _limit(default: float, text: str) -> Any:
    """Declare a limit with its text for people."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one process; each process of a service has its own. A rate is also the largest burst."""

    max_count: int = _limit(10_000, "ids in one response")
    # only the login form has a body
    max_body_bytes: int = _limit(4_096, "size of a request's body")
    max_query_bytes: int = _limit(2_048, "size of a request's path and query")
    id_requests_per_s: int = _limit(50_000, "requests for ids in a second")
    # workers, pool, events, whois, metrics
    lookups_per_s: int = _limit(50, "requests for lookups in a second")
    # above it, tokens are refused without a comparison
    wrong_tokens_per_s: int = _limit(10, "wrong tokens that are compared in a second")
    max_at_once: int = _limit(1_000, "concurrent requests, besides probes")
    max_viewers: int = _limit(100, "open dashboards")
    # so that one client with viewers that do not read leaves room for others
    max_viewers_per_address: int = _limit(50, "open dashboards of one client address")
    wait_s: float = _limit(2.0, "how long a request waits for an id before it gets 503")
    # while load balancers notice that it is not ready
    drain_s: float = _limit(5.0, "how long it goes on serving after SIGTERM")
    # the following need `snowredis serve`, or its worker class for gunicorn
    # one that waits costs little memory; closing it would cost more, since most come back at once
    max_connections: int = _limit(10_000, "connections, besides probes")
    max_connections_per_address: int = _limit(6_000, "connections of one client address")
    request_timeout_s: float = _limit(10.0, "how long a client may take to send a request")
    response_timeout_s: float = _limit(30.0, "how long a client may take to read a response")
    # longer than proxies keep theirs, so that it is not the service that closes
    keep_alive_s: float = _limit(75.0, "how long a connection without requests stays open")

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # without a drain it stops at once
            if not is_number or not (value > 0 or (limit.name == "drain_s" and value == 0)):
                raise ConfigError(f"{limit.name} must be a number above 0, not {value!r}")
        if self.max_count > MAX_BATCH:
            raise ConfigError(f"max_count={self.max_count} is above the largest batch, {MAX_BATCH:,} ids")


class TokenBucket:
    """Allow *rate* requests a second, and bursts of as many."""

    __slots__ = ("_at_s", "_left", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._left = float(rate)
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Return true if the request is allowed."""
        left = min(self.rate, self._left + max(0.0, now_s - self._at_s) * self.rate)
        self._at_s = now_s
        allowed = left >= 1.0
        self._left = left - 1.0 if allowed else left
        return allowed
