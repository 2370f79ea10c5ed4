"""Requests and replies of the scripts of numbers, and the errors of numbers. Pure data.

A *tag* names numbers on one server. They are in *periods*, each of which has numbers of its own, or in one period that
never ends.

SnowredisError
├── NumbersClosed          no numbers are handed out until the tag is opened
└── NumbersExhausted       every number of the tag, or of the period, is handed out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from snowredis.errors import SnowredisError
from snowredis.numbers.formats import EVER, MAX_NUMBER, Period
from snowredis.servers.scripts import Reason, ScriptReply

# --- requests ------------------------------------------------------------------------------------------


class TakeRequest(NamedTuple):
    """Request for numbers of a period.

    Attributes:
        period: the one that it is now, as far as the caller knows.
        seen: the next number after the highest that this process saw in the period.
        wanted: how many numbers the caller asks for.
        least: how many it needs.
        highest: the highest number that it can use.
    """

    period: Period = EVER
    seen: int = 0
    wanted: int = 1
    least: int = 1
    highest: int = MAX_NUMBER


class OpenRequest(NamedTuple):
    """Request to create a tag, or to open a period, as a person says.

    Attributes:
        action: "create": the tag is new; "open": a period goes on.
        period: as in TakeRequest; of no meaning to "create".
        from_number: no number from here on was ever handed out; of a new tag, its first number.
        durability, stride, maximum: constants of a new tag.
    """

    action: Literal["create", "open"]
    period: Period = EVER
    from_number: int = 1
    durability: str = "detect"
    stride: int = 1
    maximum: int = MAX_NUMBER


# --- replies -------------------------------------------------------------------------------------------


class ClosedReason(Reason):
    """Why a tag hands out nothing until it is opened."""

    NO_TAG = "no-tag", "this Redis does not know the tag: it is new, or Redis lost it"
    OTHER_SERVER = "other-server", "Redis was restarted, failed over or replaced, and may have lost its last writes"
    REPLICATED = (
        "replicated",
        "a replica was connected or Redis was promoted, so that Redis has another replication id; a loss cannot be "
        "excluded",
    )
    ROLLED_BACK = "rolled-back", "Redis forgot numbers that it had handed out"
    OTHER_DATABASE = (
        "other-database",
        "it was copied from another database of Redis, where the original may hand out the same numbers",
    )


class Answer(ScriptReply, redis_ms=int, next=int):
    """State of the period after a call.

    Attributes:
        redis_ms: the time of the call on the Redis clock, ms since 1970.
        next: no number below it is handed out again.
    """

    redis_ms: int
    next: int


class GrantedNumbers(Answer, status="granted", first=int, count=int, stride=int, left=int):
    """Numbers were handed out: *count* from *first* on, *stride* apart; *left* ones are not handed out yet."""

    first: int
    count: int
    stride: int
    left: int

    @property
    def numbers(self) -> range:
        """Return the numbers."""
        return range(self.first, self.first + self.count * self.stride, self.stride)


class Exhausted(Answer, left=int):
    """Only *left* numbers are not handed out, fewer than are needed; none was."""

    left: int


class Shut(Answer, reason=ClosedReason, since_ms=int):
    """The period hands out nothing. Those that begin at *since_ms* or later are open."""

    reason: ClosedReason
    since_ms: int


class OtherPeriod(Answer, status="other"):
    """Redis' clock shows another period."""


class Opened(Answer):
    """The period hands out numbers; or the tag was created."""


class ExistingTag(Answer, status="exists"):
    """The tag is not created: it exists, or processes saw higher numbers of it."""


class AbsentTag(Answer, status="absent"):
    """Redis does not know the tag, so it has to be created."""


class SettlingTag(Answer, status="settling", wait_ms=int):
    """The period can be opened in *wait_ms*: until then, a deposed master may answer, and processes use numbers."""

    wait_ms: int


TakeReply: TypeAlias = GrantedNumbers | Exhausted | Shut | OtherPeriod
OpenReply: TypeAlias = Opened | ExistingTag | AbsentTag | SettlingTag | OtherPeriod
# script -> all of them
REPLIES: Mapping[str, tuple[type[Answer], ...]] = {"take": get_args(TakeReply), "open": get_args(OpenReply)}

# --- errors --------------------------------------------------------------------------------------------


class NumbersClosed(SnowredisError):
    """The tag hands out no numbers, since Redis may have forgotten some; no number was made.

    Attributes:
        tag: the tag.
        reason: why.
        next_number: the lowest number that may be unused, as far as this Redis and this process know.
        period: label of the period; "" for one that never ends.
        wait_ms: until the first period that is open for certain; 0 for one that never ends, which a person opens.
        options: of the command that creates this tag.
    """

    def __init__(
        self, tag: str, reason: ClosedReason, next_number: int, period: str = "", wait_ms: int = 0, options: str = ""
    ) -> None:
        super().__init__(tag, reason, next_number, period, wait_ms, options)
        self.tag, self.reason, self.next_number = tag, reason, next_number
        self.period, self.wait_ms, self.options = period, wait_ms, options

    @property
    def retry(self) -> bool:  # type: ignore[override]
        """True if the next period opens by itself."""
        return bool(self.period)

    def __str__(self) -> str:
        create, verb, options = f"snowredis numbers create {self.tag}", "open", " --from N"
        new = f"if it is new, create it: {create}{self.options}; otherwise " if self.reason == "no-tag" else ""
        at, later = "", ""
        if self.period:
            at, options = f" in the period {self.period}", f" --from N --period {self.period}"
            later = f". The next period that is open by itself begins in {self.wait_ms / 1000:.0f} s"
        elif new and "--period" not in self.options:
            verb, options = "create", f"{self.options} --start N, and with the other options that it had"
        return (
            f"the tag {self.tag!r} is closed{at}: {self.reason.text}. No number was made. Next: {new}find the highest "
            f"number in use, such as that in the table, and {verb} the tag beyond it, from {self.next_number} or "
            f"later: snowredis numbers {verb} {self.tag}{options}{later}."
        )


class NumbersExhausted(SnowredisError):
    """Every number of the tag, or of the period, is handed out, or too few are left; no number was made.

    Attributes:
        tag: the tag.
        maximum: the highest number; 0 if it is not known.
        period: label of the period; "" for one that never ends.
        left: how many numbers are left, fewer than were asked for.
    """

    def __init__(self, tag: str, maximum: int, period: str = "", left: int = 0) -> None:
        super().__init__(tag, maximum, period, left)
        self.tag, self.maximum, self.period, self.left = tag, maximum, period, left

    def __str__(self) -> str:
        of = f" of the period {self.period}" if self.period else ""
        have = f"has only {self.left} numbers left" if self.left else "has no number left"
        return (
            f"the tag {self.tag!r} {have}{of}, up to its maximum {self.maximum}. No number was made. Use a format with "
            "more digits, or another tag."
        )
