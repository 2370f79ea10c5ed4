"""Requests to the script of dated numbers, and its replies. Pure data."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from snowredis.dated.periods import Period

# a process uses no number that Redis handed out to it this long ago
BLOCK_LIFE_MS = 5_000
# how long after a loss a period is opened at the earliest: by then, no process has numbers of before
SETTLE_MS = BLOCK_LIFE_MS + 1_000

Action: TypeAlias = Literal["take", "open", "create"]


class Request(NamedTuple):
    """Request to the script.

    Attributes:
        amount: how many numbers; with "open", the next number.
        seen: the next number after the highest that this process saw in the period.
    """

    action: Action
    period: Period
    amount: int = 1
    seen: int = 1


class DatedReply(NamedTuple):
    """A reply of the script.

    Attributes:
        status: see the header of the script.
        now_ms: time of the call, on the Redis clock.
        values: the other fields.
    """

    status: str
    now_ms: int
    values: tuple[str, ...]


# statuses -> how many fields follow the time
FIELDS = {
    "granted": 1,
    "opened": 1,
    "created": 0,
    "exists": 0,
    "elsewhen": 0,
    "closed": 4,
    "settling": 1,
    "exhausted": 0,
    "past": 0,
}
