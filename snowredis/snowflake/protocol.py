"""The protocol of a pool: its constants, the requests to its store with their statistics, and the store's interface.

Pure data: no Redis, no clock, no lock. All times are milliseconds since 1970. The replies are in replies.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import as_int
from snowredis.errors import ConfigError
from snowredis.servers.scripts import with_format
from snowredis.settings import check
from snowredis.snowflake.replies import Seen, Terms


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


# the format of what a pool stores: fields, records, index; see FORMATS in snowredis.signatures
FORMAT = 1


def is_deleted(over: str, end: str, now_ms: int) -> bool:
    """Return whether a pool with these fields has ended, and any settings may start at its name."""
    return over == "now" or (over == "then" and end.isdecimal() and int(end) <= now_ms)


# two heartbeats may fail before a lease ends; and each is repeated twice a second meanwhile
HEARTBEATS_PER_TTL = 3
# a longer ttl is a mistake: ms instead of s
MAX_TTL_MS = 24 * 3600 * 1000
DEFAULT_OUTAGE_RESERVE_MS = 24 * 3600 * 1000
# a longer outage_reserve is a mistake, too
MAX_OUTAGE_RESERVE_MS = 31 * MAX_TTL_MS
# length of the stream of events, as in pool.lua: an event takes about 250 bytes, 20,000 of them 5 MB
MAX_EVENTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Constants of a pool, the same in all its processes.

    Attributes:
        name: of the pool.

    The others are the settings of connect() with these names; -1 stands for their default, a twelfth of the ttl or that
    of outage_reserve.

    Raises:
        ConfigError: a value, or a combination, that cannot work.
    """

    name: str
    layout: Layout = field(default_factory=Layout)
    datacenter: int = 0
    ttl_ms: int = 30_000
    max_clock_lead_ms: int = -1
    redis_skew_ms: int = -1
    failover_slack_ms: int = 0
    outage_reserve_ms: int = -1
    durability: str = "detect"

    def __post_init__(self) -> None:
        # connect() takes None for the default; here it is refused
        check("pool", self.name or "")
        limits = dict.fromkeys(("ttl_ms", "max_clock_lead_ms", "redis_skew_ms", "failover_slack_ms"), MAX_TTL_MS)
        for option, most in (limits | {"outage_reserve_ms": MAX_OUTAGE_RESERVE_MS}).items():
            try:
                value = as_int(getattr(self, option))
            except TypeError:
                raise ConfigError(
                    f"{option} must be a whole number of milliseconds, not {getattr(self, option)!r}"
                ) from None
            object.__setattr__(self, option, value)
            if value > most or (value < 0 and (value != -1 or option in ("ttl_ms", "failover_slack_ms"))):
                raise ConfigError(
                    f"{option}={value} is out of range: 0 to {most} ms "
                    f"({'a day' if most == MAX_TTL_MS else f'{most // MAX_TTL_MS} days'}) can be used"
                )
        object.__setattr__(self, "datacenter", check("datacenter", self.datacenter))
        if not isinstance(self.datacenter, int):  # a caller without types
            raise ConfigError(f"datacenter={self.datacenter!r} names no number; the pool in Redis knows it")
        if not 0 <= self.datacenter < self.layout.datacenters:
            raise ConfigError(
                f"datacenter={self.datacenter} does not fit {self.layout.datacenter_bits} datacenter bits: 0 to "
                f"{self.layout.datacenters - 1} can be used. Give another number, or a layout with datacenter bits."
            )
        for option in ("max_clock_lead_ms", "redis_skew_ms"):
            if getattr(self, option) == -1:
                object.__setattr__(self, option, self.ttl_ms // 12)
        self._check_outage_reserve()
        check("durability", self.durability)
        needed = self.max_clock_lead_ms + self.redis_skew_ms + self.failover_slack_ms + self.heartbeat_ms
        if self.ttl_ms < 100 or self.ttl_ms <= needed:
            raise ConfigError(
                f"ttl {self.ttl_ms} ms is too short: it must be 100 ms at least, and more than max_clock_lead "
                f"{self.max_clock_lead_ms} + redis_skew {self.redis_skew_ms} + failover_slack {self.failover_slack_ms} "
                f"+ one heartbeat {self.heartbeat_ms} = {needed} ms, or running workers would lose their leases in a "
                f"failover. Raise ttl to {max(100, 2 * needed)} ms, or lower the others."
            )

    def _check_outage_reserve(self) -> None:
        if self.outage_reserve_ms == -1:
            object.__setattr__(self, "outage_reserve_ms", default_outage_reserve_ms(self.layout, self.ttl_ms))
        if self.outage_reserve_ms and not self.layout.backup_bits:
            raise ConfigError(
                f"outage_reserve {self.outage_reserve_ms} ms needs a namespace of its own, and layout {self.layout} "
                "has no backup bits. Give the layout backup bits, or set outage_reserve to 0."
            )
        if 0 < self.outage_reserve_ms <= self.ttl_ms:
            raise ConfigError(
                f"outage_reserve {self.outage_reserve_ms} ms must be longer than the ttl, {self.ttl_ms} ms; or 0"
            )

    @property
    def ordinary_lanes(self) -> int:
        """Return the number of a worker id's lanes without its outage lane, which is the highest one."""
        return self.layout.namespaces - (self.outage_reserve_ms > 0)

    @property
    def heartbeat_ms(self) -> int:
        """Return the time between two renewals."""
        return heartbeat_ms_of(self.ttl_ms, self.max_clock_lead_ms + self.redis_skew_ms + self.failover_slack_ms)

    @property
    def floor_ms(self) -> int:
        """Return how long new workers wait after Redis may have lost something."""
        return self.horizon_ms(self.ttl_ms)

    def horizon_ms(self, length_ms: int) -> int:
        """Return after how long all has ended that lasts *length_ms* and that any server granted, as in pool.lua."""
        return length_ms + self.max_clock_lead_ms + self.redis_skew_ms + self.failover_slack_ms

    @property
    def signature(self) -> str:
        """Return all constants as one line, which is stored in the pool and compared by every script."""
        return with_format(
            FORMAT,
            f"layout={layout_spec(self.layout)} datacenter={self.datacenter} ttl_ms={self.ttl_ms} "
            f"max_clock_lead_ms={self.max_clock_lead_ms} redis_skew_ms={self.redis_skew_ms} "
            f"failover_slack_ms={self.failover_slack_ms} outage_reserve_ms={self.outage_reserve_ms} "
            f"durability={self.durability}",
        )


def default_outage_reserve_ms(layout: Layout, ttl_ms: int) -> int:
    """Return the default of outage_reserve.

    With one backup bit, no namespace would be left for a clock that goes back; with a ttl of a day, all last a day.
    """
    return DEFAULT_OUTAGE_RESERVE_MS if layout.backup_bits >= 2 and ttl_ms < DEFAULT_OUTAGE_RESERVE_MS else 0


def heartbeat_ms_of(ttl_ms: int, others_ms: int) -> int:
    """Return the time between two renewals: half of the usual one where a failover would take the rest of a ttl.

    Args:
        others_ms: max_clock_lead + redis_skew + failover_slack.
    """
    usual_ms = ttl_ms // HEARTBEATS_PER_TTL
    return max(1, usual_ms if ttl_ms > others_ms + usual_ms else usual_ms // 2)


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


def signature_fields(signature: str) -> dict[str, str]:
    """Split a signature into its parts by name."""
    return dict(part.split("=", 1) for part in signature.split(" ") if "=" in part)


def pool_keys(pool: str) -> tuple[str, str, str]:
    """Return the keys of a pool: hash, index and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:{{{pool}}}"
    return key, f"{key}:leases", f"{key}:events"


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
