"""Constants of a tag, requests to its store, and the replies. Pure data.

A *tag* names one sequence of numbers. Its numbers are handed out as *segments*, half-open ranges of *positions*:
position 0 is the first number of a server's share, position 1 the next one of it. The scripts know positions only.
Of dated numbers, each period has numbers of its own, and a position is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from snowredis.core.as_json import IdNumber
from snowredis.core.description import IdDescription
from snowredis.core.values import as_int
from snowredis.errors import ConfigError, shown
from snowredis.numbers.errors import CLOSED_REASONS
from snowredis.servers.scripts import with_format
from snowredis.settings import POOL_NAME

if TYPE_CHECKING:
    from snowredis.numbers.formats import Period

# of what is stored, see FORMATS in snowredis.signatures
FORMAT = 3
# exact in Lua's doubles, 16 digits
MAX_POSITION = 9_000_000_000_000_000
MAX_NUMBER = 2**63 - 1
# segments that a client tells with every request: the script accepts no more
MOST_SEGMENTS = 16
_SIGNATURE = re.compile(
    rf"format={FORMAT} start=(?P<start>\d+) maximum=(?P<maximum>\d+) share=(?P<index>\d+)/(?P<count>\d+) "
    r"durability=(?P<durability>detect|assured) failover_slack_ms=(?P<failover_slack_ms>\d+)"
)
_LIMITS = {
    "start": MAX_NUMBER,
    "maximum": MAX_NUMBER,
    "failover_slack_ms": 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TagConfig:
    """Constants of a tag of segments, the same in all its processes.

    Attributes:
        tag: its name: 1 to 64 letters, digits, '_', '.' or '-'.
        start: the first number.
        maximum: the last number that may be handed out.
        durability: "detect": a restart or failover of Redis closes the tag; "assured": Redis never loses a write that
            it acknowledged.
        failover_slack_ms: how long a deposed master may go on answering.
        share: (index, count): of *count* independent servers this is number *index*, whose numbers are those with
            (number - start) % count == index.

    Raises:
        ConfigError: a value that cannot work.
    """

    tag: str
    start: IdNumber = 1
    maximum: IdNumber = MAX_NUMBER
    durability: str = "detect"
    failover_slack_ms: int = 0
    share: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if not POOL_NAME.accepts(self.tag):
            raise ConfigError(
                f"tag must be 1 to 64 letters, digits, '_', '.' or '-', such as 'invoices', not {shown(self.tag)}"
            )
        for name, most in _LIMITS.items():
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
    def assured(self) -> bool:
        """True if Redis never loses a write that it acknowledged."""
        return self.durability == "assured"

    @property
    def size(self) -> int:
        """Return how many positions this server has."""
        index, count = self.share
        return min((self.maximum - self.start - index) // count + 1, MAX_POSITION)

    @property
    def signature(self) -> str:
        """Return the constants as text. They are stored in the tag, and compared by every script."""
        index, count = self.share
        return with_format(
            FORMAT,
            f"start={self.start} maximum={self.maximum} share={index}/{count} durability={self.durability} "
            f"failover_slack_ms={self.failover_slack_ms}",
        )

    def number_at(self, position: int) -> int:
        """Return the number at *position*; one beyond the maximum if all are handed out."""
        index, count = self.share
        return self.start + index + position * count

    def position_from(self, number: int) -> int:
        """Return the first position whose number is *number* or more; ``size`` if there is none."""
        index, count = self.share
        return min(max(0, -((self.start + index - number) // count)), self.size)


def parse_signature(tag: str, signature: str) -> TagConfig:
    """Return the constants that a stored *signature* describes. Raises ConfigError if it is not valid."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise ConfigError(
            f"the tag {tag!r} has a signature that this version of snowredis does not write: {shown(signature)}. Use "
            "the version that created it, or another tag."
        )
    fields = found.groupdict()
    share, durability = (int(fields.pop("index")), int(fields.pop("count"))), fields.pop("durability")
    numbers = {name: int(text) for name, text in fields.items()}
    return TagConfig(tag=tag, durability=durability, share=share, **numbers)


# --- requests ------------------------------------------------------------------------------------------


class TakeRequest(NamedTuple):
    """Request for the next segment; or a report, which asks for none.

    Attributes:
        client: random name of one generator in one process, hex.
        received: how many segments this client has received so far from this server.
        request_id: random name of the request, hex; a repeated one has the same.
        segments: its newest segments (from, until), the oldest first; up to MOST_SEGMENTS.
        incarnation: of the tag, when it received the newest one; "" if it has none.
        seen: the highest end of any segment that it knows of, also of other clients.
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
            says so; "change": a person gives the tag other constants, and closed it before by close() with *run*.
        from_position: where it opens, or later.
        settle_ms: how long the tag must have been closed, so that living processes have reported.
        run: random name of the change, hex; "" if it is none.
    """

    how: str
    from_position: int
    settle_ms: int = 0
    run: str = ""


class PeriodRequest(NamedTuple):
    """Request to the script of dated numbers.

    Attributes:
        action: "create": the tag is new; "take" numbers; "open" the period, which somebody knows about.
        period: the one that it is now, as far as the caller knows.
        least: how many numbers the caller needs; with "open", the next number.
        most: how many numbers it takes, if they are left.
        seen: the next number after the highest that this process saw in the period.
    """

    action: Literal["take", "open", "create"]
    period: Period
    least: int = 1
    most: int = 1
    seen: int = 1


# --- replies -------------------------------------------------------------------------------------------


class ClosedReason(StrEnum):
    """Why a tag hands out nothing until it is opened."""

    NO_TAG = "no-tag"
    OTHER_SERVER = "other-server"
    REPLICATED = "replicated"
    ROLLED_BACK = "rolled-back"
    MOVED = "moved"

    @property
    def text(self) -> str:
        """Return the reason as a clause for people."""
        return CLOSED_REASONS[self]


@dataclass(frozen=True, slots=True)
class Answer:
    """State of the tag after a call.

    Attributes:
        redis_ms: the time of the call on the Redis clock, ms since 1970.
        incarnation: changes whenever the tag is closed or opened; "" of dated numbers.
        next: no position below it is handed out again.
        alarm: (from, until): positions that may have been handed out twice, as this call found out; or None.
    """

    redis_ms: int
    incarnation: str
    next: int
    alarm: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Granted(Answer):
    """A segment was handed out: positions in [from_position, until_position)."""

    from_position: int
    until_position: int


@dataclass(frozen=True, slots=True)
class Noted(Answer):
    """A report was noted."""


@dataclass(frozen=True, slots=True)
class Closed(Answer):
    """The tag is closed, since *closed_ms*, ms since 1970; nothing was handed out."""

    reason: ClosedReason
    closed_ms: int


@dataclass(frozen=True, slots=True)
class Exhausted(Answer):
    """All numbers of the range are handed out, or only *left* ones of the period are not, fewer than are needed."""

    left: int


@dataclass(frozen=True, slots=True)
class Copied(Answer):
    """Another process uses the same client name, with other requests: this one is a copy, or the other is."""


@dataclass(frozen=True, slots=True)
class Opened(Answer):
    """The tag is open; *changed*: it was not, or was moved on."""

    changed: bool


@dataclass(frozen=True, slots=True)
class Stopped(Answer):
    """The tag is closed.

    Attributes:
        reason: why it was closed before this call, or would have been; None: it was open.
        moved: a person had closed it before, to change it.
    """

    reason: ClosedReason | None
    moved: bool


@dataclass(frozen=True, slots=True)
class Settling(Answer):
    """The tag can be opened in *wait_ms*: until then, processes may report, and a deposed master may answer."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class NotNew(Answer):
    """The tag is not opened: it exists, or processes have reported numbers of it, or a person closed it since."""


@dataclass(frozen=True, slots=True)
class Shut(Answer):
    """The period hands out nothing. Those that begin at *since_ms* or later are open; it can be opened in *wait_ms*."""

    reason: ClosedReason
    since_ms: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class OtherPeriod(Answer):
    """Redis' clock shows another period."""


@dataclass(frozen=True, slots=True)
class Past(Answer):
    """The period is over so long that its numbers are forgotten."""


TakeReply: TypeAlias = Granted | Noted | Closed | Exhausted | Copied
OpenReply: TypeAlias = Opened | Settling | NotNew
PeriodReply: TypeAlias = Granted | OpenReply | Exhausted | Shut | OtherPeriod | Past
Reply: TypeAlias = TakeReply | PeriodReply | Stopped


# status -> the class, and what parses its fields beyond those of Answer
_CLASSES: dict[str, tuple[Callable[..., Reply], tuple[Callable[[str], object], ...]]] = {
    "granted": (Granted, (int, int)),
    "noted": (Noted, ()),
    "closed": (Closed, (ClosedReason, int)),
    "exhausted": (Exhausted, (int,)),
    "copied": (Copied, ()),
    "opened": (Opened, ("1".__eq__,)),
    "stopped": (Stopped, (lambda text: ClosedReason(text) if text else None, "1".__eq__)),
    "settling": (Settling, (int,)),
    "exists": (NotNew, ()),
    "shut": (Shut, (ClosedReason, int, int)),
    "other": (OtherPeriod, ()),
    "past": (Past, ()),
}


def parse_reply(texts: Sequence[str]) -> Reply:
    """Parse what a script sent, without the nonce. Raises ValueError."""
    status, redis_ms, incarnation, next_position, alarm, *rest = texts
    if status not in _CLASSES:
        raise ValueError(f"no status of a script: {status!r}")
    cls, parsers = _CLASSES[status]
    bounds = tuple(map(int, alarm.split(" "))) if alarm else None
    fields = [parse(text) for parse, text in zip(parsers, rest, strict=True)]
    return cls(int(redis_ms), incarnation, int(next_position), bounds, *fields)


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
        """Hand out a segment, or note a report. Raises StoreUnavailable and its subclasses, NumbersDiffer."""

    def open(self, request: OpenRequest) -> OpenReply:
        """Open the tag. Raises as take()."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""

    def close(self) -> None:
        """Close the connections."""


def describe(maximum: int) -> IdDescription:
    """Return the description of the numbers of a tag that ends at *maximum*."""
    return IdDescription(
        kind="segment",
        type=int,
        bits=max(1, maximum.bit_length()),
        text_length=len(str(maximum)),
        sortable=True,
        guessable=True,
        leaks=("volume",),
        needs=("redis",),
    )
