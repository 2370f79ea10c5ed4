"""Data that the scripts of a pool store: records of worker ids, in the hash of the pool, and codes of its events.

A record is packed and parsed here, and in pool.lua. The scripts write the codes, and programs compare them; the text of
a reason is for people and may be reworded at any time, a code never. The reasons of replies are in messages.py.

Everything in Python that reads or makes a record does it with LeaseRecord. A new field is added to the class and its
two methods, to the three functions of pool.lua, and changes FORMAT in pool_config.py. A text with another number of
fields is no record, so a program of another version does not misread one.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from snowredis.servers.scripts import Reason
from snowredis.snowflake.protocol.messages import NO_STATS, AlarmReason, LossReason, WorkerStats

_TIME = r"(\d{1,14})"
# the owner is JSON, the only field that may contain "|". It does not begin with what looks like another field
_TEXT = re.compile(
    rf"([\da-fA-F]*)\|([\da-fA-F-]*)\|([\da-fA-F]*)\|{_TIME}\|{_TIME}\|(\d{{1,14}}(?:,\d{{1,14}})*)\|{_TIME}\|([\da-fA-F]*)\|"
    rf"{_TIME}\|{_TIME}\|([\d,-]*)\|(?![\w,-]*\|)(.*)",
    re.DOTALL | re.ASCII,
)
# WorkerStats as text; the scripts check only the characters
_STATS = re.compile(r"-?\d{1,18}(?:,-?\d{1,18}){4}", re.ASCII)


def parse_stats(text: str) -> WorkerStats:
    """Return the statistics whose str() *text* is; zeros for any other text, also that of a new lease."""
    return WorkerStats(*map(int, text.split(","))) if _STATS.fullmatch(text) else NO_STATS


class LeaseRecord(NamedTuple):
    """Record of a worker id, leased or available.

    The mark of a lane is the later of its entry in *lanes_ms* and *until_ms*. The mark of the outage lane, the last
    one, is the later of its entry and *outage_ms*. All times are ms since 1970.

    Attributes:
        token_hash: SHA1 of the holder's token, hex; "" if the worker id is available.
        incarnation: of the pool, when the lease was granted or adopted.
        renewal_id: id of the newest renewal that was granted, or the first one of the claim.
        until_ms: end of the reservation in all lanes but the outage lane, on the clock of the holder.
        lease_end_ms: end of the lease, on the Redis clock.
        lanes_ms: where the reservation of each lane begins.
        outage_ms: end of the reservation of the outage lane; the holder has that lane if this is after its beginning.
        before: SHA1 of the token of the holder before, hex; "" if that released the worker id, or there was none.
        claimed_ms, renewed_ms: when the lease was claimed, and renewed last, on the Redis clock.
        owner: JSON that names the process: process/names.py.
    """

    token_hash: str = ""
    incarnation: str = ""
    renewal_id: str = ""
    until_ms: int = 0
    lease_end_ms: int = 0
    lanes_ms: tuple[int, ...] = (0,)
    outage_ms: int = 0
    before: str = ""
    claimed_ms: int = 0
    renewed_ms: int = 0
    stats: WorkerStats = NO_STATS
    owner: str = ""

    @classmethod
    def parse(cls, text: str) -> LeaseRecord | None:
        """Return the record in *text*; None if no script wrote it."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        token_hash, incarnation, renewal_id, until, lease_end, lanes, outage, before, *rest = match.groups()
        lanes_ms = tuple(map(int, lanes.split(",")))
        claimed, renewed, stats, owner = rest
        reserved = (int(until), int(lease_end), lanes_ms, int(outage), before, int(claimed), int(renewed))
        return cls(token_hash, incarnation, renewal_id, *reserved, parse_stats(stats), owner)

    def pack(self) -> str:
        """Return the text that the scripts store."""
        lanes = ",".join(map(str, self.lanes_ms))
        fields = (*self[:5], lanes, self.outage_ms, self.before, *self[8:10], self.stats, self.owner)
        return "|".join(map(str, fields))

    @property
    def outage_until_ms(self) -> int:
        """Return the end of the reservation of the outage lane; 0 if the holder does not have that lane."""
        return self.outage_ms if self.outage_ms > self.lanes_ms[-1] else 0

    @property
    def outage_lane_ms(self) -> tuple[int, int]:
        """Return beginning and end of the reservation of the outage lane."""
        return self.lanes_ms[-1], self.outage_ms

    @property
    def outage_mark_ms(self) -> int:
        """Return the mark of the last lane, if it is an outage lane."""
        return max(self.lanes_ms[-1], self.outage_ms)


# --- events ------------------------------------------------------------------------------------------


class EventKind(StrEnum):
    """Kind of an event. The last two concern the whole pool, the others one worker id.

    EXPIRED: a lease ended without a release. DIED: another process found its process dead and released its worker id,
    perhaps after the lease had ended. RETURNED: the process of an expired lease renewed it after all.
    """

    CLAIMED = "claimed"
    RELEASED = "released"
    EXPIRED = "expired"
    DIED = "died"
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
    OTHER_HISTORY = (
        "other-history",
        "the same server process with another replication history: a replica was attached, or it was one",
    )
    ROLLED_BACK = "rolled-back", "the pool is older than what a client saw"
    OTHER_POOL = "other-pool", "processes of another pool of this name came to this Redis"
    ENDED = "ended", "the pool before was deleted"


# the events that have a reason, and the class of it
REASONS: dict[EventKind, type[Reason]] = {
    EventKind.FLOOR: FloorReason,
    EventKind.ADOPTED: FloorReason,
    EventKind.LOST: LossReason,
    EventKind.ALARM: AlarmReason,
}
