"""The requests to the store of a pool, its replies, and the interface of stores.

Pure data: no Redis, no clock, no lock. All times are milliseconds since 1970: on the Redis clock, or, for lanes and
reservations, on the clock of the process that holds the lease. There is one class for each reply of the scripts:
PoolFull for the text "full".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from snowredis.core.values import time_text
from snowredis.servers.scripts import Reason, ScriptReply, flag
from snowredis.snowflake.protocol.pool_config import PoolConfig


class Seen(NamedTuple):
    """Newest state of a pool that this client saw, by which a script notices a pool that was rolled back."""

    incarnation: str = ""
    version: int = 0

    @classmethod
    def parse(cls, text: str) -> Seen:
        version, _, incarnation = text.partition("@")
        return cls(incarnation, int(version))

    def __str__(self) -> str:
        return f"{self.version}@{self.incarnation}" if self.incarnation else ""


class Terms(NamedTuple):
    """A lease as Redis grants it: one text, which its holder sends as it is.

    Attributes:
        until_ms: the end of the reservation, the same in all lanes but the outage lane.
        outage_until_ms: that of the outage lane, at or below its beginning if it is not open; None: none is wanted.
        renewal_id: of the last renewal that was answered, or of the claim.
        lanes_ms: the beginning of the reservation in each lane.
    """

    worker: int
    until_ms: int
    outage_until_ms: int | None
    incarnation: str
    renewal_id: str
    lanes_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Terms:
        worker, until, outage, incarnation, renewal_id, *lanes = text.split(",")
        ends = None if outage == "-" else int(outage)
        return cls(int(worker), int(until), ends, incarnation, renewal_id, tuple(map(int, lanes)))

    def __str__(self) -> str:
        outage = "-" if self.outage_until_ms is None else self.outage_until_ms
        return ",".join(map(str, (self.worker, self.until_ms, outage, *self[3:5], *self.lanes_ms)))


# for a claim that had no reply yet
NO_TERMS = Terms(0, 0, None, "", "", ())


def lane_until_ms(at_ms: int, *lanes: tuple[int, int]) -> int:
    """Return the end of the outage lanes in which ids go on at *at_ms*; 0: in none.

    *lanes*: beginning and end of the reservation in each, on one clock. A lane that opens after a gap does not count.
    """
    until_ms = 0
    for from_ms, end_ms in sorted(lanes):
        if from_ms <= max(at_ms, until_ms):
            until_ms = max(until_ms, end_ms)
    return until_ms


def ids_until_ms(until_ms: int, *lanes: tuple[int, int]) -> int:
    """Return until when a process makes ids if Redis takes no more renewals: what the process and all viewers say.

    *until_ms*: the end of its reservation in the ordinary lanes; *lanes*: as in lane_until_ms().
    """
    return max(until_ms, lane_until_ms(until_ms, *lanes))


def pool_id(incarnation: str) -> str:
    """Return the part of an *incarnation* that all of one pool have, and no other pool."""
    return incarnation.partition("-")[2][:8]


# --- requests ------------------------------------------------------------------------------------------


class WorkerStats(NamedTuple):
    """Statistics of one worker at its last heartbeat.

    Attributes:
        ids_made: ids made since the process started.
        ids_per_second: ids per second since the heartbeat before.
        clock_offset_ms: the worker's clock minus the Redis clock.
        namespace: value of the backup bits in use.
        clock_backs: how often the worker's clock went back.
    """

    ids_made: int = 0
    ids_per_second: int = 0
    clock_offset_ms: int = 0
    namespace: int = 0
    clock_backs: int = 0

    def __str__(self) -> str:
        """Return the form that is stored in Redis: the five numbers, separated by commas."""
        return ",".join(map(str, self))


# a lease with which no id was made has these statistics
NO_STATS = WorkerStats()


def hash_of(token: str) -> str:
    """Return what Redis and people see of the *token* of a claim."""
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()


# letters in the options of a claim: the caller wants an outage lane; lanes that it can use now; it gives up if the pool
# is full; the pool refused its settings before
WANTS_LANE, NOW, GIVES_UP, REFUSED = "o", "n", "g", "r"


class ClaimRequest(NamedTuple):
    """Request for a worker id. The fields of each request are the arguments of its script, in this order.

    Attributes:
        seen: the state of the pool in the newest reply that this client got.
        caller_ms: the caller's wall clock.
        token: names this claim; a repeated claim of the same *owner* gets the same lease. Secret, hex.
        owner: result of owner_text() in process/names.py.
        lane_until_ms: end of the outage lane that the caller has, of a lease that it lost or replaces; 0: it has none.
        options: any of the letters above.
    """

    seen: Seen
    caller_ms: int
    token: str
    owner: str
    lane_until_ms: int = 0
    options: str = WANTS_LANE + GIVES_UP


class RenewRequest(NamedTuple):
    """Request to extend a lease.

    Attributes:
        seen, caller_ms, token, owner: as in ClaimRequest.
        lease: its terms, as they were granted or renewed last.
        pending: names this renewal; a repeated renewal has the same.
    """

    seen: Seen
    caller_ms: int
    token: str
    owner: str
    lease: Terms
    pending: str
    stats: WorkerStats


# a release on behalf of a process that was killed
KILLED = "killed"


class ReleaseRequest(NamedTuple):
    """Request to release a worker id.

    Attributes:
        seen, caller_ms, token, lease: as in RenewRequest.
        pending: names a renewal that was sent and had no reply; empty if there is none.
        opened: for each lane "1" if ids may have been made in it, else "0"; "" or KILLED if that is unknown. A lane
            that was never opened goes back whole, the others are reserved to their end.
    """

    seen: Seen
    caller_ms: int
    token: str
    lease: Terms
    pending: str
    opened: str
    stats: WorkerStats


class CreateRequest(NamedTuple):
    """Request to create the pool so that its first worker does not wait, and outage lanes are open at once.

    A person's word: no process of that name could make ids within the last outage_reserve.
    """

    seen: Seen
    caller_ms: int


# --- replies -------------------------------------------------------------------------------------------


class LossReason(Reason):
    """Reason why a renewal was refused, so that its lease is lost."""

    COPIED = "copied", "another process presented this lease"
    LATE = "late", 'the lease was renewed too late for durability="none"'
    REASSIGNED = "reassigned", "the worker id was given to another process"
    FORGOTTEN = "forgotten", 'Redis does not know the lease, and durability="none" adopts none'
    TOO_OLD = "too-old", "Redis has no such lease any more, and the reservation is too old to be adopted"


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
        times = (time_text(time_ms) for time_ms in (self.from_ms, self.until_ms))
        return f"{self.reason.text} between {' and '.join(times)}"

    @classmethod
    def parse(cls, text: str) -> Alarm:
        """Parse what alarm_of() of pool.lua wrote. Raises ValueError."""
        code, from_ms, until_ms = text.split(" ")
        return cls(AlarmReason(code), int(from_ms), int(until_ms))


def _alarm(text: str) -> Alarm | None:
    return Alarm.parse(text) if text else None


class Reply(ScriptReply, redis_ms=int, seen=Seen.parse, floor_ms=int, alarm=_alarm):
    """Reply of any script of a pool: the state of the pool after the call.

    Attributes:
        redis_ms: the time of the call on the Redis clock.
        seen: what the next request has to show.
        floor_ms: no new reservation starts below it.
        alarm: the alarm that this call raised, if any.
    """

    redis_ms: int
    seen: Seen
    floor_ms: int
    alarm: Alarm | None


class Granted(Reply, terms=Terms.parse):
    """Reply to a claim: a worker id was leased; its first renewal presents *terms*."""

    terms: Terms


class ClaimRefused(Reply, wait_ms=int):
    """Reply to a claim: no worker id was leased; a claim may succeed after *wait_ms*."""

    wait_ms: int


class Settling(ClaimRefused):
    """Reply to a claim: the floor was raised, and until it has passed only existing leases are renewed."""


class Behind(ClaimRefused):
    """Reply to a claim: every available lane was used at times later than the caller's clock shows."""


class PoolFull(ClaimRefused):
    """Reply to a claim: every worker id is leased."""


class Renewed(Reply, terms=Terms.parse, adopted=flag):
    """Reply to a renewal: the lease was extended, to *terms*.

    Attributes:
        adopted: True if Redis had lost the lease, or may have, and accepted it again (step 4, adopt).
    """

    terms: Terms
    adopted: bool


class Lost(Reply, reason=LossReason, keeps_lane=flag):
    """Reply to a renewal: it was refused, and the lease is lost.

    Attributes:
        keeps_lane: True if the outage lane is this holder's until its end.
    """

    reason: LossReason
    keeps_lane: bool


class Released(Reply):
    """Reply to a release: the worker id is available again."""


class Gone(Reply):
    """Reply to a release: nothing changed, since the caller does not hold the worker id any more."""


class Created(Reply):
    """Reply to a creation: the pool was created; its first worker does not have to wait."""


class Exists(Reply):
    """Reply to a creation: nothing changed, since the pool exists with the same settings."""


class Absent(Reply):
    """Reply to a deletion or to a note: nothing changed, since no such pool exists."""


# --- stores --------------------------------------------------------------------------------------------


class Request(Protocol):
    """Request of any script of a pool."""

    @property
    def caller_ms(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Store(Protocol):
    """Storage of a pool. Each call is one atomic step and can be repeated if its reply was lost.

    Calls block for a round trip, about two seconds at most. They raise StoreUnavailable and its subclasses,
    LayoutMismatch if the pool has another signature, and ConfigError for arguments that the store refuses.

    Attributes:
        where: the address, without password, for messages.
        config: of the pool.
        locator: what tells the server from all others that processes of this machine reach. Empty if that is unknown,
            or if no other process can reach the pool: its leases have no crash records.
    """

    where: str
    config: PoolConfig
    locator: str

    def ask(self, request: Request) -> Any:
        """Do what *request* says, in one step; return the reply, of one of the classes above."""

    def prepare(self) -> None:
        """Learn what a claim needs and ``config`` may lack: the number of a shard.

        Blocks for a round trip, at the first call only. Raises StoreUnavailable, LayoutMismatch.
        """

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks. Takes no lock, uses no socket."""

    def close(self) -> None:
        """Close the connections. Releases no lease."""
