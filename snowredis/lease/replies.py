"""Replies of the scripts, one class for each, and the one place where their texts are parsed. Pure.

All times are milliseconds since 1970 on the Redis clock, except where a lane or a reservation is meant: those are on
the clock of its holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from snowredis.lease.codes import AlarmReason, LossReason


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest state of a pool that this client saw; shows a pool that went back in time (R10)."""

    incarnation: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of a pool: ids with times in [from_ms, until_ms] are affected."""

    reason: AlarmReason
    from_ms: int
    until_ms: int

    @property
    def text(self) -> str:
        return f"{self.reason.text} between {self.from_ms} and {self.until_ms}"

    @classmethod
    def parse(cls, text: str) -> Alarm:
        """Return what common.lua's alarm_of() wrote. Raises ValueError."""
        code, from_ms, until_ms = text.split(" ")
        return cls(AlarmReason(code), int(from_ms), int(until_ms))


@dataclass(frozen=True, slots=True)
class Reply:
    """State of the pool, which every reply shows.

    Attributes:
        redis_ms: the time of the call on the Redis clock.
        incarnation, version: as in ``seen``.
        floor_ms: no new reservation starts below it.
        alarm: what this very call found out; None if nothing.
    """

    redis_ms: int
    incarnation: str
    version: int
    floor_ms: int
    alarm: Alarm | None

    @property
    def seen(self) -> Seen:
        return Seen(self.incarnation, self.version)


@dataclass(frozen=True, slots=True)
class Granted(Reply):
    """A worker id was leased.

    Attributes:
        worker: the worker id, as this server numbers it.
        until_ms: the end of the reservation of all its lanes.
        lanes_ms: where the reservation of each lane begins.
        renewal_id: the first of the lease's chain of renewals.
    """

    worker: int
    until_ms: int
    lanes_ms: tuple[int, ...]
    renewal_id: str


@dataclass(frozen=True, slots=True)
class ClaimRefused(Reply):
    """No worker id was leased; *wait_ms* later a claim may succeed."""

    wait_ms: int


class Settling(ClaimRefused):
    """Living holders come first, after the floor was raised."""

    __slots__ = ()


class Behind(ClaimRefused):
    """Every available lane was used at times later than the caller's clock shows."""

    __slots__ = ()


class PoolFull(ClaimRefused):
    """Every worker id is leased."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Renewed(Reply):
    """A lease was extended.

    Attributes:
        until_ms: the end of its reservation.
        adopted: whether Redis had forgotten the lease and took it up again.
    """

    until_ms: int
    adopted: bool


@dataclass(frozen=True, slots=True)
class LeaseGone(Reply):
    """A renewal was refused: the lease is lost."""

    reason: LossReason


class Released(Reply):
    """A worker id was given back."""

    __slots__ = ()


class NotHeld(Reply):
    """A release changed nothing: the caller does not hold the worker id any more."""

    __slots__ = ()


class Created(Reply):
    """A pool was made, which nobody has to wait for."""

    __slots__ = ()


class AlreadyExists(Reply):
    """Creation changed nothing: there is such a pool with the same settings."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Deleted(Reply):
    """A pool was deleted.

    Attributes:
        guessed: whether its settings could not be read.
    """

    guessed: bool


class NoPool(Reply):
    """Deletion changed nothing: there is no such pool."""

    __slots__ = ()


ClaimReply: TypeAlias = Granted | ClaimRefused
RenewReply: TypeAlias = Renewed | LeaseGone
ReleaseReply: TypeAlias = Released | NotHeld
CreateReply: TypeAlias = Created | AlreadyExists
DeleteReply: TypeAlias = Deleted | NoPool

_Common: TypeAlias = tuple[int, str, int, int, Alarm | None]


def parse_claim(texts: Sequence[str]) -> ClaimReply:
    """Return the reply of claim.lua. All parsers here raise ValueError for what the script does not reply."""
    pool, status, rest = _split(texts)
    match status, rest:
        case "granted", [worker, until_ms, lanes_ms, renewal_id]:
            lanes = tuple(map(int, lanes_ms.split(",")))
            return Granted(*pool, int(worker), int(until_ms), lanes, renewal_id)
        case "settling", [wait_ms]:
            return Settling(*pool, int(wait_ms))
        case "behind", [wait_ms]:
            return Behind(*pool, int(wait_ms))
        case "exhausted", [wait_ms]:
            return PoolFull(*pool, int(wait_ms))
    raise ValueError(texts)


def parse_renew(texts: Sequence[str]) -> RenewReply:
    """Return the reply of renew.lua."""
    pool, status, rest = _split(texts)
    match status, rest:
        case "renewed", [until_ms, adopted]:
            return Renewed(*pool, int(until_ms), adopted == "1")
        case "lost", [reason]:
            return LeaseGone(*pool, LossReason(reason))
    raise ValueError(texts)


def parse_release(texts: Sequence[str]) -> ReleaseReply:
    """Return the reply of release.lua."""
    pool, status, rest = _split(texts)
    match status, rest:
        case "released", []:
            return Released(*pool)
        case "gone", []:
            return NotHeld(*pool)
    raise ValueError(texts)


def parse_create(texts: Sequence[str]) -> CreateReply:
    """Return the reply of create.lua."""
    pool, status, rest = _split(texts)
    match status, rest:
        case "created", []:
            return Created(*pool)
        case "exists", []:
            return AlreadyExists(*pool)
    raise ValueError(texts)


def parse_delete(texts: Sequence[str]) -> DeleteReply:
    """Return the reply of delete.lua."""
    pool, status, rest = _split(texts)
    match status, rest:
        case "deleted", [guessed]:
            return Deleted(*pool, guessed == "1")
        case "absent", []:
            return NoPool(*pool)
    raise ValueError(texts)


def _split(texts: Sequence[str]) -> tuple[_Common, str, list[str]]:
    status, redis_ms, incarnation, version, floor_ms, alarm, *rest = texts
    found = Alarm.parse(alarm) if alarm else None
    return (int(redis_ms), incarnation, int(version), int(floor_ms), found), status, rest
