"""The constants of a tag, the requests to its store, and the store's interface. Pure data.

A *tag* names one sequence of numbers. Its numbers are handed out as *segments*, half-open ranges of *positions*:
position 0 is the first number of a server's share, position 1 the next one of it. The scripts know positions only; they
grow forever, also where the numbers of a cyclic tag begin again.

Bounds of closed tags, taken from the table that has the numbers.

Description of the numbers of a tag. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError, shown
from snowredis.numbers.replies import OpenReply, TakeReply
from snowredis.settings import as_int

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.sql import ColumnElement


# exact in Lua's doubles, 16 digits
MAX_POSITION = 9_000_000_000_000_000
MAX_NUMBER = 2**63 - 1
# at most this much may be handed out at once under max_rate: so many seconds' worth
BURST_S = 10
# of those that a client received, so many are told with every request: the script accepts no more
MOST_SEGMENTS = 16
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIGNATURE = re.compile(
    r"low=(?P<start>\d+) high=(?P<maximum>\d+) cyclic=(?P<cyclic>[01]) share=(?P<index>\d+)/(?P<count>\d+) "
    r"assured=(?P<assured>[01]) max_rate=(?P<max_rate>\d+) redis_skew_ms=(?P<redis_skew_ms>\d+) "
    r"failover_slack_ms=(?P<failover_slack_ms>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagConfig:
    """Constants of a tag, the same in all its processes.

    Attributes:
        tag: its name: 1 to 64 letters, digits, '_', '.' or '-'.
        start: the first number.
        maximum: the last number that may be handed out.
        cyclic: begin again at *start* after *maximum*.
        assured: Redis never loses a write that it acknowledged: no restart or failover closes the tag.
        max_rate: numbers a second that Redis hands out at most, with bursts of BURST_S seconds; then a tag whose Redis
            may have lost its last writes opens by itself, further on. 0: no limit, and a person opens it.
        redis_skew_ms: how far the clocks of two Redis servers may differ.
        failover_slack_ms: how long a deposed master may go on answering.
        share: (index, count): of *count* independent servers this is number *index*, whose numbers are those with
            (number - start) % count == index.

    Raises:
        ConfigError: a value that cannot work.
    """

    tag: str
    start: int = 1
    maximum: int = MAX_NUMBER
    cyclic: bool = False
    assured: bool = False
    max_rate: int = 0
    redis_skew_ms: int = 2_500
    failover_slack_ms: int = 0
    share: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str) or not _TAG.fullmatch(self.tag):
            raise ConfigError(
                f"tag must be 1 to 64 letters, digits, '_', '.' or '-', such as 'invoices', not {shown(self.tag)}"
            )
        limits = {
            "start": MAX_NUMBER,
            "maximum": MAX_NUMBER,
            "max_rate": 10**12,
            "redis_skew_ms": 86_400_000,
            "failover_slack_ms": 86_400_000,
        }
        for name, most in limits.items():
            try:
                value = as_int(getattr(self, name))
            except TypeError:
                value = -1
            if not 0 <= value <= most:
                raise ConfigError(f"{name} must be a whole number from 0 to {most}, not {shown(value)}")
            object.__setattr__(self, name, value)
        index, count = self.share
        if not 0 <= index < count or self.start + count - 1 > self.maximum:
            raise ConfigError(
                f"the numbers from {self.start} to {self.maximum} are too few: each of {count} servers needs at least "
                "one. Raise maximum."
            )

    @property
    def size(self) -> int:
        """Return how many positions this server has before its numbers are used up, or begin again."""
        index, count = self.share
        return min((self.maximum - self.start - index) // count + 1, MAX_POSITION)

    @property
    def signature(self) -> str:
        """Return the constants as text: they are stored in the tag, and compared by every script."""
        index, count = self.share
        return (
            f"low={self.start} high={self.maximum} cyclic={self.cyclic:d} share={index}/{count} "
            f"assured={self.assured:d} max_rate={self.max_rate} redis_skew_ms={self.redis_skew_ms} "
            f"failover_slack_ms={self.failover_slack_ms}"
        )

    def number_at(self, position: int) -> int:
        """Return the number at *position*; one beyond the maximum if all are handed out."""
        index, count = self.share
        return self.start + index + (position % self.size if self.cyclic else position) * count

    def position_from(self, number: int) -> int:
        """Return the first position, within one cycle, whose number is *number* or more; ``size`` if there is none."""
        index, count = self.share
        return min(max(0, -((self.start + index - number) // count)), self.size)


def parse_signature(tag: str, signature: str) -> TagConfig:
    """Return the constants that a stored *signature* describes. Raises ConfigError if it is not valid."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise ConfigError(f"the tag {tag!r} has a signature that snowredis never writes: {shown(signature)}")
    numbers = {name: int(text) for name, text in found.groupdict().items()}
    share = numbers.pop("index"), numbers.pop("count")
    cyclic, assured = bool(numbers.pop("cyclic")), bool(numbers.pop("assured"))
    return TagConfig(tag=tag, cyclic=cyclic, assured=assured, share=share, **numbers)


class TakeRequest(NamedTuple):
    """Request for the next segment; or a report, which asks for none.

    Attributes:
        client: random name of one generator in one process, hex.
        received: how many segments this client has received so far from this server.
        request_id: random name of the request, hex; a repeated one has the same.
        segments: its newest segments (from, until), the oldest first; up to MOST_SEGMENTS.
        incarnation: of the tag, when it received the newest one; "" if it has none.
        seen: the highest end of any segment that it knows of, also those of others.
        wanted: how many positions it asks for; 0: none, this is a report.
        owner: JSON: who this is, for people.
    """

    client: str
    received: int
    request_id: str
    segments: tuple[tuple[int, int], ...]
    incarnation: str
    seen: int
    wanted: int
    owner: str

    def arguments(self) -> list[str | int]:
        """Return the fields as the script takes them."""
        segments = ",".join(f"{first}-{until}" for first, until in self.segments)
        return [segments if value is self.segments else value for value in self]  # type: ignore[misc]


class OpenRequest(NamedTuple):
    """Request to open a tag.

    Attributes:
        how: "create": it is new; "word": a person says that no number from here on was handed out; "bound": a program
            says so.
        from_position: where it opens, or later.
        settle_ms: how long the tag must have been closed, so that living processes have reported.
        replace: 1: take over other constants, and forget the old ones' positions; else 0.
    """

    how: str
    from_position: int
    settle_ms: int
    replace: int


class TagStore(Protocol):
    """Store of the state of one tag: one server. Thread-safe is only what says so.

    Attributes:
        where: the address, for messages.
        config: of the tag, with this server's share.
    """

    where: str
    config: TagConfig

    @property
    def urls(self) -> Sequence[str]:
        """The URL with which another process reaches the same server; empty if it has none."""

    def take(self, request: TakeRequest) -> TakeReply:
        """Hand out a segment, or note a report. Raises StoreUnavailable and its subclasses, TagMismatch."""

    def open(self, request: OpenRequest) -> OpenReply:
        """Open the tag. Raises as take()."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""

    def close(self) -> None:
        """Close the connections."""


def highest_in(
    engine: Engine, *columns: ColumnElement[int] | InstrumentedAttribute[int]
) -> Callable[[], int | None]:
    """Return a ``bound`` for SegmentGenerator: a function that returns the highest number in *columns*.

    None if there is no row. Every column that has numbers of the tag belongs here, archives included. Needs SQLAlchemy;
    each column needs an index.
    """
    from sqlalchemy import func, select

    statements = [select(func.max(column)) for column in columns]

    def highest() -> int | None:
        with engine.connect() as connection:
            found = [connection.execute(statement).scalar() for statement in statements]
        return max((number for number in found if number is not None), default=None)

    return highest


def describe(maximum: int, *, cyclic: bool) -> IdDescription:
    """Return the description of the numbers of a tag that ends at *maximum*."""
    return IdDescription(
        kind="segment",
        type=int,
        bits=max(1, maximum.bit_length()),
        text_length=len(str(maximum)),
        sortable=not cyclic,
        guessable=True,
        leaks=("volume",),
        needs=("redis",),
    )
