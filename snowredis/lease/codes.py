"""Codes of events and of reasons, each with a text for people.

The scripts write the codes, programs compare them, and only people read the texts: a text may be reworded at any time,
a code never. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class EventKind(StrEnum):
    """What happened. The last two concern the whole pool."""

    CLAIMED = "claimed"
    RELEASED = "released"
    EXPIRED = "expired"
    ADOPTED = "adopted"
    LOST = "lost"
    CLOCK_BACK = "clock-back"
    FLOOR = "floor"
    ALARM = "alarm"


class Reason(StrEnum):
    """A code that is a str and has a ``text``."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member


class FloorReason(Reason):
    """Why a pool's floor was raised; also why a lease was adopted."""

    NO_POOL = "no-pool", "no pool in this Redis"
    OTHER_SERVER = "other-server", "another server process"
    ROLLED_BACK = "rolled-back", "the pool is older than what a client saw"
    SILENCE = "silence", "silence of over one ttl"


class LossReason(Reason):
    """Why a renewal was refused, so that its lease is lost."""

    COPIED = "copied", "another process presented this lease"
    LATE = "late", 'the lease was renewed too late for durability="none"'
    REASSIGNED = "reassigned", "the worker id was given to another process"
    FORGOTTEN = "forgotten", 'Redis does not know the lease, and durability="none" adopts none'
    TOO_OLD = "too-old", "Redis lost the lease and the reservation is too old to be adopted"


class AlarmReason(Reason):
    """Why a pool raised an alarm."""

    IDS_MAY_REPEAT = "ids-may-repeat", "ids may have been repeated"


# which events carry a reason, and of which kind
REASONS: dict[EventKind, type[Reason]] = {
    EventKind.FLOOR: FloorReason,
    EventKind.ADOPTED: FloorReason,
    EventKind.LOST: LossReason,
    EventKind.ALARM: AlarmReason,
}
