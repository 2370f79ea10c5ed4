"""Replies of the scripts, one class for each, and the one place where their texts are parsed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class ClosedReason(StrEnum):
    """Why a tag hands out nothing until it is opened."""

    NO_TAG = "no-tag"
    OTHER_SERVER = "other-server"
    ROLLED_BACK = "rolled-back"
    MOVED = "moved"

    @property
    def text(self) -> str:
        """Return the reason as a clause for people."""
        return _REASONS[self]


_REASONS = {
    ClosedReason.NO_TAG: "this Redis does not know the tag: it is new, or Redis lost it",
    ClosedReason.OTHER_SERVER: "Redis was restarted, failed over or replaced, and may have lost its last writes",
    ClosedReason.ROLLED_BACK: "Redis forgot segments that it had handed out",
    ClosedReason.MOVED: "a person closed it",
}


@dataclass(frozen=True, slots=True)
class TagState:
    """State of the tag after a call.

    Attributes:
        redis_ms: the time of the call on the Redis clock, ms since 1970.
        incarnation: changes whenever the tag is closed or opened.
        next: no position below it is handed out again.
        alarm: (from, until): positions that may have been handed out twice, as this call found out; or None.
    """

    redis_ms: int
    incarnation: str
    next: int
    alarm: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Granted(TagState):
    """A segment was handed out: positions in [from_position, until_position)."""

    from_position: int
    until_position: int


@dataclass(frozen=True, slots=True)
class Noted(TagState):
    """A report was noted."""


@dataclass(frozen=True, slots=True)
class Closed(TagState):
    """The tag is closed, since *closed_ms*, ms since 1970; nothing was handed out."""

    reason: ClosedReason
    closed_ms: int


@dataclass(frozen=True, slots=True)
class Exhausted(TagState):
    """All numbers of the range are handed out."""


@dataclass(frozen=True, slots=True)
class Limited(TagState):
    """max_rate allows the next number in *wait_ms*."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class Copied(TagState):
    """Another process uses the same client name, with other requests: this one is a copy, or the other is."""


@dataclass(frozen=True, slots=True)
class Opened(TagState):
    """The tag is open; *changed*: it was not, or was moved on."""

    changed: bool


@dataclass(frozen=True, slots=True)
class Settling(TagState):
    """The tag can be opened in *wait_ms*: until then, processes may report, and a deposed master may answer."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class NotNew(TagState):
    """The tag cannot be created: it exists, or processes have reported numbers of it."""


TakeReply: TypeAlias = Granted | Noted | Closed | Exhausted | Limited | Copied
OpenReply: TypeAlias = Opened | Settling | NotNew
Reply: TypeAlias = TakeReply | OpenReply


# status -> the class, and what parses its fields beyond those of TagState
_CLASSES: dict[str, tuple[Callable[..., Reply], tuple[Callable[[str], object], ...]]] = {
    "granted": (Granted, (int, int)),
    "noted": (Noted, ()),
    "closed": (Closed, (ClosedReason, int)),
    "exhausted": (Exhausted, ()),
    "limited": (Limited, (int,)),
    "copied": (Copied, ()),
    "opened": (Opened, ("1".__eq__,)),
    "settling": (Settling, (int,)),
    "exists": (NotNew, ()),
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
