"""Replies of the scripts, one class for each, and the one place where their texts are parsed. Pure.

All times are milliseconds since 1970: on the Redis clock, or, for lanes and reservations, on the clock of the process
that holds the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from snowredis.core.values import utc_text


class Seen(NamedTuple):
    """Newest state of a pool that this client saw, by which a script notices a pool that was rolled back (R10)."""

    incarnation: str = ""
    version: int = 0


def pool_id(incarnation: str) -> str:
    """Return the part of an *incarnation* that all of one pool have, and no other pool."""
    return incarnation.partition("-")[2][:8]


class Reason(StrEnum):
    """Base class of reasons: codes that are str and have a ``text``."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member


class LossReason(Reason):
    """Reason why a renewal was refused, so that its lease is lost."""

    COPIED = "copied", "another process presented this lease"
    LATE = "late", 'the lease was renewed too late for durability="none"'
    REASSIGNED = "reassigned", "the worker id was given to another process"
    FORGOTTEN = "forgotten", 'Redis does not know the lease, and durability="none" adopts none'
    TOO_OLD = "too-old", "Redis lost the lease and the reservation is too old to be adopted"


class AlarmReason(Reason):
    """Reason of an alarm of a pool."""

    IDS_MAY_REPEAT = "ids-may-repeat", "ids may have been repeated"


class Alarm(NamedTuple):
    """Alarm of a pool about the ids with times in [from_ms, until_ms]."""

    reason: AlarmReason
    from_ms: int
    until_ms: int

    @property
    def text(self) -> str:
        """Return the alarm as a clause for people, with its times in UTC."""
        return f"{self.reason.text} between {_time(self.from_ms)} and {_time(self.until_ms)}"

    @classmethod
    def parse(cls, text: str) -> Alarm:
        """Parse what alarm_of() of pool.lua wrote. Raises ValueError."""
        code, from_ms, until_ms = text.split(" ")
        return cls(AlarmReason(code), int(from_ms), int(until_ms))


class Reply:
    """Reply of any script: the state of the pool after the call.

    Attributes:
        redis_ms: the time of the call on the Redis clock.
        incarnation, version: as in Seen.
        floor_ms: no new reservation starts below it.
        alarm: the alarm that this call raised, if any.
    """

    # not a dataclass: a program would take 3 ms longer to its first id, in which the methods of six are generated
    __slots__ = ("redis_ms", "incarnation", "version", "floor_ms", "alarm")
    _fields: ClassVar[tuple[str, ...]] = __slots__

    redis_ms: int
    incarnation: str
    version: int
    floor_ms: int
    alarm: Alarm | None

    def __init_subclass__(cls) -> None:
        cls._fields += cls.__slots__

    def __init__(self, *values: object) -> None:
        for name, value in zip(self._fields, values, strict=True):
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({', '.join(values)})"

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values of some attributes."""
        values = {name: getattr(self, name) for name in self._fields} | changes
        return type(self)(*values.values())

    @property
    def seen(self) -> Seen:
        """Return what the next request has to show."""
        return Seen(self.incarnation, self.version)


class Granted(Reply):
    """Reply to a claim: a worker id was leased.

    Attributes:
        worker: the worker id, as this server numbers it.
        until_ms: the end of the reservation, the same in all lanes but the outage lane.
        lanes_ms: the beginning of the reservation in each lane.
        renewal_id: the id that the first renewal has to present as the one before it.
        outage_until_ms: the end of the reservation in the outage lane; 0 if there is none.
    """

    __slots__ = ("worker", "until_ms", "lanes_ms", "renewal_id", "outage_until_ms")

    worker: int
    until_ms: int
    lanes_ms: tuple[int, ...]
    renewal_id: str
    outage_until_ms: int


class ClaimRefused(Reply):
    """Reply to a claim: no worker id was leased; a claim may succeed after *wait_ms*."""

    __slots__ = ("wait_ms",)

    wait_ms: int


class Settling(ClaimRefused):
    """Reply to a claim: the floor was raised, and until it has passed only existing leases are renewed."""

    __slots__ = ()


class Behind(ClaimRefused):
    """Reply to a claim: every available lane was used at times later than the caller's clock shows."""

    __slots__ = ()


class PoolFull(ClaimRefused):
    """Reply to a claim: every worker id is leased."""

    __slots__ = ()


class Renewed(Reply):
    """Reply to a renewal: the lease was extended.

    Attributes:
        until_ms: the end of its reservation.
        adopted: True if Redis had lost the lease, or may have, and accepted it again (R4).
        outage_from_ms, outage_until_ms: its reservation in the outage lane; 0 if there is none.
    """

    __slots__ = ("until_ms", "adopted", "outage_from_ms", "outage_until_ms")

    until_ms: int
    adopted: bool
    outage_from_ms: int
    outage_until_ms: int


class LeaseGone(Reply):
    """Reply to a renewal: it was refused, and the lease is lost; but not the outage lane, unless it was copied."""

    __slots__ = ("reason",)

    reason: LossReason


class Released(Reply):
    """Reply to a release: the worker id is available again."""

    __slots__ = ()


class NotHeld(Reply):
    """Reply to a release: nothing changed, since the caller does not hold the worker id any more."""

    __slots__ = ()


class Created(Reply):
    """Reply to a creation: the pool was created; its first worker does not have to wait."""

    __slots__ = ()


class AlreadyExists(Reply):
    """Reply to a creation: nothing changed, since the pool exists with the same settings."""

    __slots__ = ()


class Deleted(Reply):
    """Reply to a deletion: the pool was deleted.

    Attributes:
        guessed: True if its settings could not be read, so that those of the request were used.
    """

    __slots__ = ("guessed",)

    guessed: bool


class NoPool(Reply):
    """Reply to a deletion or to a note: nothing changed, since no such pool exists."""

    __slots__ = ()


class NumberNoted(Reply):
    """Reply to a note: the pool stores that the registry has confirmed its shard number."""

    __slots__ = ()


class LayoutChanging(Reply):
    """Reply to a change of the layout: it is planned.

    Attributes:
        new_floor_ms: ids of the old layout have earlier times, those of the new one this or later ones.
    """

    __slots__ = ("new_floor_ms",)

    new_floor_ms: int


class LayoutKept(Reply):
    """Reply to a change of the layout: nothing was planned; a plan that there was is undone."""

    __slots__ = ()


class ChangeLate(LayoutKept):
    """Reply to a change of the layout: its moment has passed, or is over a year away; nothing changed."""

    __slots__ = ()


class ChangeEarly(LayoutKept):
    """Reply to a change of the layout: outage lanes are reserved beyond its moment; nothing changed.

    Attributes:
        earliest_ms: the first moment that is behind all reservations.
    """

    __slots__ = ("earliest_ms",)

    earliest_ms: int


ClaimReply: TypeAlias = Granted | ClaimRefused
RenewReply: TypeAlias = Renewed | LeaseGone
ReleaseReply: TypeAlias = Released | NotHeld
CreateReply: TypeAlias = Created | AlreadyExists
DeleteReply: TypeAlias = Deleted | NoPool
NoteReply: TypeAlias = NumberNoted | NoPool
ChangeReply: TypeAlias = LayoutChanging | LayoutKept


def _ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _time(time_ms: int) -> str:
    return utc_text(time_ms) or f"{time_ms} ms"


def _flag(text: str) -> bool:
    return text == "1"


# a script's status -> the class of the reply, and what reads each of the fields that it adds to Reply
_CLASSES: dict[str, tuple[type[Reply], tuple[Callable[[str], Any], ...]]] = {
    "granted": (Granted, (int, int, _ints, str, int)),
    "settling": (Settling, (int,)),
    "behind": (Behind, (int,)),
    "exhausted": (PoolFull, (int,)),
    "renewed": (Renewed, (int, _flag, int, int)),
    "lost": (LeaseGone, (LossReason,)),
    "released": (Released, ()),
    "gone": (NotHeld, ()),
    "created": (Created, ()),
    "exists": (AlreadyExists, ()),
    "deleted": (Deleted, (_flag,)),
    "absent": (NoPool, ()),
    "noted": (NumberNoted, ()),
    "changing": (LayoutChanging, (int,)),
    "kept": (LayoutKept, ()),
    "late": (ChangeLate, ()),
    "early": (ChangeEarly, (int,)),
}


def parse_reply(texts: Sequence[str]) -> Reply:
    """Parse the reply of any script. Raises ValueError for what no script replies."""
    status, redis_ms, incarnation, version, floor_ms, alarm, *fields = texts
    if status not in _CLASSES:
        raise ValueError(status)
    reply, readers = _CLASSES[status]
    return reply(
        int(redis_ms),
        incarnation,
        int(version),
        int(floor_ms),
        Alarm.parse(alarm) if alarm else None,
        *(read(text) for read, text in zip(readers, fields, strict=True)),
    )
