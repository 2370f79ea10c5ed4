"""The requests to the store of a pool, with the statistics that they carry; and the interface of stores.

Pure data: no Redis, no clock, no lock. All times are milliseconds since 1970. The replies are in replies.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.replies import Seen, Terms


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


class Request(Protocol):
    """Request of any script of a pool."""

    @property
    def seen(self) -> Seen: ...

    @property
    def caller_ms(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Store(Protocol):
    """Storage of a pool. Each call is one atomic step and can be repeated if its reply was lost.

    Calls block for a round trip, about two seconds at most. They raise StoreUnavailable and its subclasses,
    LayoutMismatch if the pool has another signature, and ConfigError for arguments that the store refuses.
    """

    @property
    def where(self) -> str:
        """Return the address, without password, for messages."""

    @property
    def config(self) -> PoolConfig: ...

    @property
    def locator(self) -> str:
        """Return what tells the server from all others that processes of this machine reach.

        Empty if that is unknown, or if no other process can reach the pool: its leases have no crash records.
        """

    def ask(self, request: Request) -> Any:
        """Do what *request* says, in one step; return the reply, of one of the classes in replies.py."""

    def prepare(self) -> None:
        """Learn what a claim needs and ``config`` may lack: the number of a shard.

        Blocks for a round trip, at the first call only. Raises StoreUnavailable, LayoutMismatch.
        """

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks. Takes no lock, uses no socket."""

    def close(self) -> None:
        """Close the connections. Releases no lease."""
