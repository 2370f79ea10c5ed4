"""Interface of the store of a tag: its requests and replies, and the errors of numbers. Pure data.

A *tag* names one sequence of numbers. It lives on one server, or has a *share* on each of several independent ones. Its
numbers are handed out as *segments*, half-open ranges of *positions*: position 0 is the first number of the share,
position 1 the next one. The scripts know positions only.
Of dated numbers, each period has numbers of its own, and a position is a number.

SnowredisError
├── NumbersClosed          no numbers are handed out until the tag is opened
├── NumbersExhausted       every number of the range, or of the period, is handed out
├── SettingsMismatch
│   └── NumbersDiffer      the tag was created with other settings
└── StoreUnavailable
    └── NumbersBroken      a field of the tag holds a value that snowredis never writes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from snowredis.errors import SettingsMismatch, SnowredisError, StoreUnavailable
from snowredis.servers.scripts import Reason, ScriptReply, flag

if TYPE_CHECKING:
    from snowredis.numbers.formats import Period
    from snowredis.numbers.settings import TagConfig

# segments that a client tells with every request: the script accepts no more
MOST_SEGMENTS = 16

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


def _bounds(text: str) -> tuple[int, int] | None:
    first, _, until = text.partition(" ")
    return (int(first), int(until)) if text else None


class Answer(ScriptReply, redis_ms=int, incarnation=str, next=int, alarm=_bounds):
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


class GrantedNumbers(Answer, status="granted", from_position=int, until_position=int):
    """A segment was handed out: positions in [from_position, until_position)."""

    from_position: int
    until_position: int


class Noted(Answer):
    """A report was noted."""


class Closed(Answer, reason=ClosedReason, closed_ms=int):
    """The tag is closed, since *closed_ms*, ms since 1970; nothing was handed out."""

    reason: ClosedReason
    closed_ms: int


class Exhausted(Answer, left=int):
    """All numbers of the range are handed out, or only *left* ones of the period are not, fewer than are needed."""

    left: int


class CopiedClient(Answer, status="copied"):
    """Another process uses the same client name, with other requests: this one is a copy, or the other is."""


class Opened(Answer, changed=flag):
    """The tag is open; *changed*: it was not, or was moved on."""

    changed: bool


class Changed(Answer):
    """The tag has the new constants."""


class SettlingTag(Answer, status="settling", wait_ms=int):
    """The tag can be opened in *wait_ms*: until then, processes may report, and a deposed master may answer."""

    wait_ms: int


class NotNew(Answer, status="exists"):
    """The tag is not created: it exists, or processes have reported numbers of it."""


class Shut(Answer, reason=ClosedReason, since_ms=int, wait_ms=int):
    """The period hands out nothing. Those that begin at *since_ms* or later are open; it can be opened in *wait_ms*."""

    reason: ClosedReason
    since_ms: int
    wait_ms: int


class OtherPeriod(Answer, status="other"):
    """Redis' clock shows another period."""


class ForgottenPeriod(Answer, status="past"):
    """The period is over so long that its numbers are forgotten."""


TakeReply: TypeAlias = GrantedNumbers | Noted | Closed | Exhausted | CopiedClient
OpenReply: TypeAlias = Opened | SettlingTag | NotNew
PeriodReply: TypeAlias = GrantedNumbers | OpenReply | Exhausted | Shut | OtherPeriod | ForgottenPeriod
ChangeReply: TypeAlias = Changed | Closed | Exhausted
# all of them
REPLIES: tuple[type[Answer], ...] = get_args(TakeReply | PeriodReply | ChangeReply)

# --- errors --------------------------------------------------------------------------------------------


class NumbersClosed(SnowredisError):
    """The tag hands out no numbers, since Redis may have forgotten some; no number was made.

    Attributes:
        tag: the tag.
        reason: why.
        next_number: the lowest number that may be unused, as far as this Redis and the processes know.
        period: label of the period, of dated numbers; "" for segments.
        wait_ms: until the first period that is open for certain; 0 for segments, which a person opens.
        options: of the command that creates this tag, if it is new.
    """

    def __init__(
        self, tag: str, reason: ClosedReason, next_number: int, period: str = "", wait_ms: int = 0, options: str = ""
    ) -> None:
        super().__init__(tag, reason, next_number, period, wait_ms, options)
        self.tag, self.reason, self.next_number = tag, reason, next_number
        self.period, self.wait_ms, self.options = period, wait_ms, options

    @property
    def retry(self) -> bool:  # type: ignore[override]
        """True for dated numbers, whose next period opens by itself."""
        return bool(self.period)

    def __str__(self) -> str:
        what = f"the tag {self.tag!r} is closed" + (f" in the period {self.period}" if self.period else "")
        new = constants = ""
        if self.reason is ClosedReason.NO_TAG:
            new = f"if it is new, create it: snowredis numbers create {self.tag}{self.options}; otherwise "
            # a Redis that lost the tag of segments does not know them
            constants = "" if self.period else self.options
        text = (
            f"{what}: {self.reason.text}. No number was made. Next: {new}find the highest number in use, such as that "
            f"in the table, and open the tag beyond it, from {self.next_number} or later: snowredis numbers open "
            f"{self.tag} --from N{constants}"
        )
        if self.period:
            text += (
                f" --period {self.period}. The next period that is open by itself begins in {self.wait_ms / 1000:.0f} s"
            )
        return f"{text}."


class NumbersExhausted(SnowredisError):
    """Every number of the range, or of the period, is handed out, or too few are left; no number was made.

    Attributes:
        tag: the tag.
        maximum: the highest number.
        period: label of the period, of dated numbers; "" for segments.
        left: how many numbers are left, fewer than were asked for.
    """

    def __init__(self, tag: str, maximum: int, period: str = "", left: int = 0) -> None:
        super().__init__(tag, maximum, period, left)
        self.tag, self.maximum, self.period, self.left = tag, maximum, period, left

    def __str__(self) -> str:
        of = f" of the period {self.period}" if self.period else ""
        have = f"has only {self.left} numbers left" if self.left else "has no number left"
        advice = "a format with more digits" if self.period else "change it: snowredis numbers change"
        return (
            f"the tag {self.tag!r} {have}{of}, up to its maximum {self.maximum}. No number was made. Use another tag, "
            f"or a higher maximum: {advice}."
        )


class NumbersDiffer(SettingsMismatch):
    """The tag was created with other settings, or by a version with another format; no number was made.

    Attributes:
        tag: its name.
    """

    _what, _where, _refused = "the tag", "in the tag", "No number was made."
    _advice = "Use the settings of the tag, or another tag."

    def __init__(self, tag: str, stored: str, given: str) -> None:
        super().__init__(tag, stored, given)
        self.tag = tag


class NumbersBroken(StoreUnavailable):
    """A field of the tag holds a value that snowredis never writes, for example after a manual edit."""

    retry = False

    def __init__(self, where: str, tag: str, field: str, value: str) -> None:
        super().__init__(where, f"field {field!a} holds {value[:60]!a}")
        self.args = (where, tag, field, value)
        self.tag, self.field, self.value = tag, field, value

    def __str__(self) -> str:
        return (
            f"the tag {self.tag!r} in Redis at {self.where} is broken: {self.reason}, which snowredis never writes. "
            f"Nothing was changed. Find the highest number in use, delete the tag with: snowredis numbers delete "
            f"{self.tag}, and open it beyond that number: snowredis numbers open {self.tag} --from N"
        )


# --- store ---------------------------------------------------------------------------------------------


class TagStore(ABC):
    """Base class of the stores of a tag of segments on one server.

    Attributes:
        where: the address, for messages.
        config: the constants; the share counts once it is known.
        knows_share: False until learn_share(), of several servers.
    """

    where: str
    config: TagConfig
    knows_share = True

    @property
    def options(self) -> str:
        """Return the options of the command that creates this tag."""
        if self.knows_share:
            return self.config.options
        return f"{replace(self.config, share=(0, 1)).options} --share K/{self.config.share[1]}"

    def closed(self, reply: Closed) -> NumbersClosed:
        """Return the error for a tag that is closed."""
        config = self.config
        return NumbersClosed(config.tag, reply.reason, config.number_at(reply.next), options=self.options)

    def learn_share(self) -> None:  # noqa: B027 - in memory, it is known
        """Read which share of the tag the server has.

        Raises NumbersClosed if it does not know the tag, ConfigError if it is a share of another number of servers,
        NumbersDiffer, StoreUnavailable.
        """

    @abstractmethod
    def take(self, request: TakeRequest) -> TakeReply:
        """Hand out a segment, or note a report. Raises StoreUnavailable and its subclasses, NumbersDiffer."""

    def after_fork(self) -> None:  # noqa: B027 - in memory, the child's copy is a tag of its own
        """In a forked child: use nothing of the parent's connections and locks."""

    def close(self) -> None:  # noqa: B027
        """Close the connections."""
