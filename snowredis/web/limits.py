"""Limits of one process of the service: sizes, rates, concurrency. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from snowredis.errors import ConfigError
from snowredis.runtime.batches import MAX_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one process; each process of a service has its own. A rate is also the largest burst.

    Attributes:
        max_count: ids in one response.
        max_body_bytes: of a request; only the login form has a body.
        max_query_bytes: path and query of a request.
        id_requests_per_s: requests for ids.
        lookups_per_s: requests that read from Redis: workers, pool, events, whois, metrics.
        wrong_tokens_per_s: after that, tokens are refused without a comparison.
        max_at_once: concurrent requests.
        max_viewers: open dashboards.
        wait_s: how long a request waits for an id before it gets 503.
    """

    max_count: int = 10_000
    max_body_bytes: int = 4_096
    max_query_bytes: int = 2_048
    id_requests_per_s: int = 50_000
    lookups_per_s: int = 50
    wrong_tokens_per_s: int = 10
    max_at_once: int = 1_000
    max_viewers: int = 100
    wait_s: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"{field.name} must be a number above 0, not {value!r}")
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
