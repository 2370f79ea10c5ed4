"""Codes of events and of their reasons, each with a text for people; the reasons of replies are in replies.py.

The scripts write the codes, and programs compare them; the texts are for people and may be reworded at any time, the
codes never. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from snowredis.servers.scripts import Reason
from snowredis.snowflake.replies import AlarmReason, LossReason


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


class FloorReason(Reason):
    """Reason why a pool's floor was raised, or a lease was adopted."""

    NO_POOL = "no-pool", "no pool in this Redis"
    OTHER_SERVER = "other-server", "another server process"
    OTHER_HISTORY = "other-history", "the same server process with another replication history: a replica was attached"
    ROLLED_BACK = "rolled-back", "the pool is older than what a client saw"
    OTHER_POOL = "other-pool", "processes of another pool of this name came to this Redis"
    LAYOUT_CHANGED = "layout-changed", "the layout of the pool was changed"
    ENDED = "ended", "the pool before was deleted"


# the events that have a reason, and the class of it
REASONS: dict[EventKind, type[Reason]] = {
    EventKind.FLOOR: FloorReason,
    EventKind.ADOPTED: FloorReason,
    EventKind.LOST: LossReason,
    EventKind.ALARM: AlarmReason,
}
