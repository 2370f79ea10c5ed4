"""What one process of the service puts up with: sizes, rates, how many at once.

Pure: no socket, no loop. The caller says what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from snowredis.errors import ConfigError
from snowredis.runtime.batches import MAX_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one process; several processes have as much each.

    Attributes:
        max_count: ids in one answer.
        max_body_bytes: of a request; only the form that takes the token has a body at all.
        max_query_bytes: path and query of a request.
        id_requests_per_s: requests for ids; as many may come at once.
        lookups_per_s: requests that ask Redis: workers, pool, events, whois, metrics; as many may come at once.
        wrong_tokens_per_s: what is wrong beyond that is not even compared.
        max_at_once: requests that are being answered.
        max_viewers: open dashboards.
        wait_s: how long a request waits for an id before it is told to come again.
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
            raise ConfigError(f"max_count={self.max_count}: {MAX_BATCH:,} ids can be made at once")


class Bucket:
    """Tokens that come back at a rate; a request takes one."""

    __slots__ = ("_at_s", "_left", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._left = float(rate)
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Whether there was one left."""
        left = min(self.rate, self._left + max(0.0, now_s - self._at_s) * self.rate)
        self._at_s = now_s
        taken = left >= 1.0
        self._left = left - 1.0 if taken else left
        return taken
