"""Codes of events and of reasons, each with a text for people.

The scripts write the codes, and programs compare them; the texts are for people and may be reworded at any time, the
codes never. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class EventKind(StrEnum):
    """Kind of an event. The last two concern the whole pool, the others one worker id.

    EXPIRED: a lease ended without a release. RECLAIMED: a process was found dead and its lease was released, maybe
    after that had ended. RETURNED: the process of an expired lease renewed it after all.
    """

    CLAIMED = "claimed"
    RELEASED = "released"
    EXPIRED = "expired"
    RECLAIMED = "reclaimed"
    RETURNED = "returned"
    ADOPTED = "adopted"
    LOST = "lost"
    CLOCK_BACK = "clock-back"
    FLOOR = "floor"
    ALARM = "alarm"


class Reason(StrEnum):
    """Base class of reasons: codes that are str and have a ``text``."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member


class FloorReason(Reason):
    """Reason why a pool's floor was raised, or a lease was adopted."""

    NO_POOL = "no-pool", "no pool in this Redis"
    OTHER_SERVER = "other-server", "another server process"
    ROLLED_BACK = "rolled-back", "the pool is older than what a client saw"
    LAYOUT_CHANGED = "layout-changed", "the layout of the pool was changed"
    SILENCE = "silence", "no script ran for over one ttl"


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


# the events that have a reason, and the class of it
REASONS: dict[EventKind, type[Reason]] = {
    EventKind.FLOOR: FloorReason,
    EventKind.ADOPTED: FloorReason,
    EventKind.LOST: LossReason,
    EventKind.ALARM: AlarmReason,
}
