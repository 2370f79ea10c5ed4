"""Constants of a tag, requests to its store, and the replies. Pure data.

A *tag* names one sequence of numbers. It lives on one server, or has a *share* on each of several independent ones. Its
numbers are handed out as *segments*, half-open ranges of *positions*: position 0 is the first number of the share,
position 1 the next one. The scripts know positions only.
Of dated numbers, each period has numbers of its own, and a position is a number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from snowredis.core.as_json import IdNumber
from snowredis.core.description import IdDescription
from snowredis.core.values import as_int
from snowredis.errors import ConfigError, shown
from snowredis.numbers.errors import CLOSED_REASONS, NumbersClosed
from snowredis.servers.scripts import with_format
from snowredis.settings import POOL_NAME

if TYPE_CHECKING:
    from snowredis.numbers.formats import Period

# of what is stored, see FORMATS in snowredis.signatures
FORMAT = 4
# exact in Lua's doubles, 16 digits
MAX_POSITION = 9_000_000_000_000_000
MAX_NUMBER = 2**63 - 1
# segments that a client tells with every request: the script accepts no more
MOST_SEGMENTS = 16
_SIGNATURE = re.compile(
    rf"format={FORMAT} start=(?P<start>\d+) maximum=(?P<maximum>\d+) share=(?P<share>\d+/\d+) "
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
        share: (index, count): this server has share *index* of *count*, from 0: the numbers with
            (number - start) % count == index. People count from 1: "1/2" is (0, 2).

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
                f"the numbers from {self.start} to {self.maximum} are too few: each of {count} shares needs at least "
                "one. Raise maximum."
            )
        if self.durability not in ("detect", "assured"):
            raise ConfigError(f"durability must be detect or assured, not {shown(self.durability)}")

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
        return with_format(
            FORMAT,
            f"start={self.start} maximum={self.maximum} share={share_text(self.share)} durability={self.durability} "
            f"failover_slack_ms={self.failover_slack_ms}",
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that these constants are made from."""
        return {
            "start": self.start,
            "maximum": self.maximum,
            "share": share_text(self.share),
            "durability": self.durability,
            "failover_slack": self.failover_slack_ms / 1000,
        }

    @property
    def options(self) -> str:
        """Return the settings that are not the defaults, as options of a command."""
        usual = TagConfig(tag=self.tag).settings
        return as_options({name: value for name, value in self.settings.items() if value != usual[name]})

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
    share, durability = parse_share(fields.pop("share")), fields.pop("durability")
    numbers = {name: int(text) for name, text in fields.items()}
    return TagConfig(tag=tag, durability=durability, share=share, **numbers)


def share_text(share: tuple[int, int]) -> str:
    """Return a share as people write it: "1/2" is the first of two."""
    return f"{share[0] + 1}/{share[1]}"


def parse_share(text: str) -> tuple[int, int]:
    """Parse a share, "1/2". Raises ConfigError."""
    index, slash, count = text.partition("/")
    if slash and all(part.isascii() and part.isdecimal() and len(part) < 5 for part in (index, count)):
        share = int(index) - 1, int(count)
        if 0 <= share[0] < share[1]:
            return share
    raise ConfigError(f"share must be K/N, such as 1/2 for the first of two servers, not {shown(text)}")


def as_options(settings: Mapping[str, Any]) -> str:
    """Return *settings* as options of a command, each after a space."""
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in settings.items())


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
    """Request to open a tag, as a person says.

    Attributes:
        how: "create": it is new; "word": no number from here on was handed out.
        from_position: where it opens, or later.
    """

    how: Literal["create", "word"]
    from_position: int = 0


class PeriodRequest(NamedTuple):
    """Request to the script of dated numbers.

    Attributes:
        action: "create": the tag is new; "take" numbers; "open" the period, which somebody knows about.
        period: the one that it is now, as far as the caller knows.
        wanted: how many numbers the caller needs; with "open", the next number.
        seen: the next number after the highest that this process saw in the period.
    """

    action: Literal["take", "open", "create"]
    period: Period
    wanted: int = 1
    seen: int = 1


# --- replies -------------------------------------------------------------------------------------------


class ClosedReason(StrEnum):
    """Why a tag hands out nothing until it is opened."""

    NO_TAG = "no-tag"
    OTHER_SERVER = "other-server"
    REPLICATED = "replicated"
    ROLLED_BACK = "rolled-back"
    OTHER_DATABASE = "other-database"

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
class GrantedNumbers(Answer):
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
class CopiedClient(Answer):
    """Another process uses the same client name, with other requests: this one is a copy, or the other is."""


@dataclass(frozen=True, slots=True)
class Opened(Answer):
    """The tag is open; *changed*: it was not, or was moved on."""

    changed: bool


@dataclass(frozen=True, slots=True)
class Changed(Answer):
    """The tag has the new constants."""


@dataclass(frozen=True, slots=True)
class SettlingTag(Answer):
    """The tag can be opened in *wait_ms*: until then, processes may report, and a deposed master may answer."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class NotNew(Answer):
    """The tag is not created: it exists, or processes have reported numbers of it."""


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
class ForgottenPeriod(Answer):
    """The period is over so long that its numbers are forgotten."""


TakeReply: TypeAlias = GrantedNumbers | Noted | Closed | Exhausted | CopiedClient
OpenReply: TypeAlias = Opened | SettlingTag | NotNew
PeriodReply: TypeAlias = GrantedNumbers | OpenReply | Exhausted | Shut | OtherPeriod | ForgottenPeriod
ChangeReply: TypeAlias = Changed | Closed | Exhausted
Reply: TypeAlias = TakeReply | PeriodReply | ChangeReply


# status -> the class, and what parses its fields beyond those of Answer
_CLASSES: dict[str, tuple[Callable[..., Reply], tuple[Callable[[str], object], ...]]] = {
    "granted": (GrantedNumbers, (int, int)),
    "noted": (Noted, ()),
    "closed": (Closed, (ClosedReason, int)),
    "exhausted": (Exhausted, (int,)),
    "copied": (CopiedClient, ()),
    "opened": (Opened, ("1".__eq__,)),
    "changed": (Changed, ()),
    "settling": (SettlingTag, (int,)),
    "exists": (NotNew, ()),
    "shut": (Shut, (ClosedReason, int, int)),
    "other": (OtherPeriod, ()),
    "past": (ForgottenPeriod, ()),
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
    """Store of the state of one tag on one server. Thread-safe is only what says so.

    Attributes:
        where: the address, for messages.
        config: the constants; the share counts once it is known.
        knows_share: False until learn_share(), of several servers.
        urls: the URL with which another process reaches the same server; empty if it has none.
    """

    where: str
    config: TagConfig
    knows_share: bool
    urls: Sequence[str]

    def learn_share(self) -> None:
        """Learn which share of the tag the server has. Raises as take(), NumbersClosed, ConfigError."""

    def closed(self, reply: Closed) -> NumbersClosed:
        """Return the error for a tag that is closed."""

    def take(self, request: TakeRequest) -> TakeReply:
        """Hand out a segment, or note a report. Raises StoreUnavailable and its subclasses, NumbersDiffer."""

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
