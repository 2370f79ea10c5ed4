"""The state of a pool and of its workers at one moment: PoolInfo, WorkerInfo, EndedLease; Snapshot is all of them.

Pure. pool_reader.py reads them from Redis, or from a pool of snowredis.testing. Hosts and labels are
untrusted text: any process can write them.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from snowredis.core.as_json import Hidden, HiddenMs, NowMs, Shown, TimeMs, in_json
from snowredis.core.layout import Layout
from snowredis.core.values import utc_text
from snowredis.monitor.owner import Owned, Owner, OwnerNamed
from snowredis.settings import POOL_DURATIONS
from snowredis.snowflake import protocol

# from best to worst; see state_of()
STATES = ("healthy", "late", "silent", "no-ids", "unknown", "expired", "free")
# fields of PoolInfo that count events
POOL_COUNTERS = (
    "claims",
    "refused",
    "releases",
    "expired",
    "died",
    "returned",
    "adopted",
    "lost",
    "alarms",
    "mismatches",
)
# zset of `snowredis serve`: session that was logged out -> end of its cookie, s since 1970
SESSIONS_KEY = "snowredis:ended-sessions"
# how long a death is shown
DEATH_SHOWN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class WorkerInfo(Owned):
    """One worker id and the process that leases it. Times are ms since 1970 on the Redis clock.

    Attributes:
        worker: the worker id.
        alive: whether the lease is still valid.
        owner: the process.
        claimed_ms, renewed_ms, lease_end_ms: time of the claim, of the last heartbeat, and end of the lease.
        lease_left_ms: remaining time of the lease; 0 after its end.
        reserved_from_ms, reserved_until_ms: its reservation, of the first lane, on the clock of its host.
        ids_made, ids_per_second: since the claim, and since the heartbeat before the last one.
        clock_offset_ms: clock of its host minus the Redis clock.
        namespace: the backup bits in use.
        clock_backs: how often its clock went back.
        token_hash: identifies the claim; the token cannot be derived from it.
        heartbeat_age_ms: time since the last heartbeat, or since the claim.
        state: one of STATES.
        outage_from_ms, outage_until_ms: reservation of its outage lane, in which it goes on without Redis; 0: none.
    """

    worker: int
    alive: bool
    owner: Annotated[Owner, Shown("parts", "host pid label refused version")]
    claimed_ms: TimeMs
    renewed_ms: Annotated[int, Shown("time", "heartbeat_at")]
    lease_end_ms: TimeMs
    lease_left_ms: int
    reserved_until_ms: TimeMs
    ids_made: int
    ids_per_second: int
    clock_offset_ms: int
    namespace: int
    clock_backs: int
    token_hash: Hidden
    heartbeat_age_ms: int = 0
    state: str = "healthy"
    reserved_from_ms: TimeMs = 0
    outage_until_ms: TimeMs = 0
    outage_from_ms: HiddenMs = 0

    @property
    @in_json
    def lasts_until_ms(self) -> TimeMs:
        """Until when it can make ids if it lives and cannot reach Redis. The generator knows the same of itself."""
        lanes = (self.outage_from_ms, self.outage_until_ms), (0, self.owner.lane_until_ms)
        # reservations are on the clock of its host
        return max(0, protocol.ids_until_ms(self.reserved_until_ms, *lanes) - self.clock_offset_ms)

    @property
    def makes_no_ids(self) -> bool:
        """True if it renews its lease and gets no id all the same: its clock is past what Redis reserves for it."""
        return bool(self.owner.refused) or self.reserved_until_ms - self.clock_offset_ms <= self.renewed_ms


class Refusal(NamedTuple):
    """Why Redis takes no renewal from this process, though it may reply, and since when on the Redis clock."""

    reason: str
    since_ms: int


class LayoutPeriod(NamedTuple):
    """A layout that a pool has, had, or will have.

    Attributes:
        from_ms, until_ms: ids of this layout have times in [from_ms, until_ms); None: no end is known.
    """

    layout: Layout
    from_ms: TimeMs
    until_ms: TimeMs | None


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """Settings and counters of a pool. Times are ms since 1970 on the Redis clock.

    Attributes:
        name: its name.
        layout: the present layout.
        signature: layout and settings as one text, as the pool stores it.
        now_ms, created_ms: time of the reading, and of the creation of the pool; 0 if unknown.
        floor_ms: no new worker starts before it; 0 if there never was a floor.
        incarnation: changes whenever the floor is raised.
        version: number of scripts that changed the pool.
        capacity, used, free, peak: worker ids in all, leased, available, and the most that were leased at once.
        claims, releases: worker ids that were claimed, and that were released.
        adopted: leases that Redis had forgotten and that were accepted again.
        lost: renewals that were refused.
        alarms: how often ids may have been repeated.
        floor_reason: why the floor was raised last, a code of FloorReason; empty if it never was.
        expired: leases that ended without a release, each from the moment of its end.
        died: leases whose processes another one found dead, and released.
        returned: leases that had ended and were renewed after all, because the process or Redis had been paused.
        refused: claims that gave up, since all worker ids were leased.
        mismatches: claims of processes with other settings, such as another layout, that were refused.
        mismatch_ms: when the last of them was refused; 0 if none was.
        mismatch_by: the last such processes as host:pid (label), the newest first; untrusted text.
        layouts: all layouts that the pool ever had, has, and will have as planned, in order.
        end_ms: the end of the pool, of which no reservation reaches beyond; 0 if it has none.
        changes_ms: the same if the pool has another layout then, else 0.
        alarm: text of the last alarm; empty if there is none.
        alarm_from_ms, alarm_until_ms: the times between which ids may have been repeated; 0 if there is no alarm.
    """

    name: str
    layout: Layout
    signature: Hidden
    now_ms: NowMs
    created_ms: TimeMs
    floor_ms: TimeMs
    incarnation: str
    version: int
    capacity: int
    used: int
    free: int
    peak: int
    claims: int
    releases: int
    expired: int
    adopted: int
    lost: int
    alarms: int
    alarm: str
    alarm_from_ms: TimeMs = 0
    alarm_until_ms: TimeMs = 0
    floor_reason: str = ""
    died: int = 0
    returned: int = 0
    refused: int = 0
    mismatches: int = 0
    mismatch_ms: TimeMs = 0
    mismatch_by: str = ""
    layouts: tuple[LayoutPeriod, ...] = ()
    end_ms: TimeMs = 0
    changes_ms: TimeMs = 0

    @property
    @in_json
    def deaths(self) -> int:
        """Number of leases that ended without a release or were reclaimed. It only grows; some may have returned."""
        return self.expired + self.died

    @property
    @in_json
    def settings(self) -> dict[str, str]:
        """The parts of the signature by name: layout, datacenter, ttl_ms, …"""
        return protocol.signature_fields(self.signature)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the pool as arguments of connect(), as far as its signature contains them."""
        stored = self.settings
        numbers = {name: int(text) for name, text in stored.items() if text.isdecimal()}
        # left out of the signature if it is 0; and out of the options if it is the default, which follows the layout
        numbers.setdefault("outage_reserve_ms", 0)
        if numbers["outage_reserve_ms"] == protocol.default_outage_reserve_ms(self.layout, numbers.get("ttl_ms", 0)):
            del numbers["outage_reserve_ms"]
        durations = {name: numbers[f"{name}_ms"] / 1000 for name in POOL_DURATIONS if f"{name}_ms" in numbers}
        texts: dict[str, str] = {name: stored[name] for name in ("layout", "durability") if name in stored}
        if "registry" in stored:
            texts["registry"] = stored["registry"].partition("/")[0]
        return {"datacenter": numbers.get("datacenter", 0)} | durations | texts

    def layout_of(self, an_id: int) -> LayoutPeriod:
        """Return the layout that *an_id* was made with: the latest in whose period it is; else the present one."""
        for period in reversed(self.layouts):
            if an_id >> period.layout.total_bits == 0:
                time_ms = period.layout.ms_at(an_id >> period.layout.timestamp_shift)
                if period.from_ms <= time_ms < (period.until_ms or math.inf):
                    return period
        return LayoutPeriod(self.layout, 0, None)

    @property
    @in_json
    def layout_end_ms(self) -> TimeMs:
        """First ms that does not fit the layout's timestamp bits."""
        return self.layout.end_ms

    @property
    @in_json
    def floor_wait_ms(self) -> int:
        """Time until the floor has passed, so that new workers are served; 0 if it has."""
        return max(0, self.floor_ms - self.now_ms)

    @property
    def ttl_ms(self) -> int:
        """Length of a lease; 0 if the signature does not contain it."""
        return setting_ms(self.signature, "ttl_ms")

    @property
    @in_json
    def heartbeat_ms(self) -> int:
        """Time between two heartbeats of a worker."""
        return protocol.heartbeat_ms_of(self.ttl_ms, self.floor_length_ms - self.ttl_ms)

    @property
    def floor_length_ms(self) -> int:
        """Time that new workers wait after Redis may have lost something."""
        return floor_length_ms(self.signature)

    @property
    def raised_ms(self) -> int | None:
        """When the floor was raised, with which the incarnation begins; None if that is unknown."""
        return stored_int(self.incarnation.partition("-")[0])

    @property
    def outage_reserve_ms(self) -> int:
        """For how long an outage lane is reserved; 0 if the pool has none."""
        return setting_ms(self.signature, "outage_reserve_ms")

    @property
    def lead_ms(self) -> int:
        """Maximum lead of a host's clock over the Redis clock, in ms."""
        return setting_ms(self.signature, "max_clock_lead_ms")

    def makes_same_ids_as(self, other: PoolInfo) -> bool:
        """Return true if ids of this pool and of *other* can be equal, so that they must not fill one table."""
        return (self.layout, self.settings.get("datacenter")) == (other.layout, other.settings.get("datacenter"))


@dataclass(frozen=True, slots=True)
class EndedLease(Owned):
    """A lease that ended without a release, and its process. Times are ms since 1970 on the Redis clock.

    The process *died* if another process found it dead: "died". It is *gone* if all its reservations have ended:
    no process saw its end, and if it lives, it has no ids. Else it is *silent*: it was killed, or lives and makes ids
    without Redis.

    Attributes:
        at_ms: the end of the lease, or, if it was reclaimed, the time of that.
        worker: the worker id that it had.
        owner: the process.
        kind: "expired": the lease ended; "died": another process released it after a kill.
        renewed_ms, claimed_ms: times of the last heartbeat and of the claim; None if unknown.
        until_ms: end of its reservation, or of the part that it really used if it was reclaimed.
        ids_made: as of its last heartbeat; it may have made more since.
        lasts_until_ms: until when the process makes ids if it lives; 0 if it was reclaimed.
        key: identity of its event, by which the same lease is recognized in two readings.
        acknowledged: whether somebody said that he has seen it.
    """

    at_ms: TimeMs
    worker: int
    owner: OwnerNamed
    kind: Literal["expired", "died"]
    renewed_ms: Annotated[int | None, Shown("time", "heartbeat_at")]
    claimed_ms: TimeMs | None
    until_ms: Annotated[int, Shown("time", "reserved_until")]
    ids_made: int
    lasts_until_ms: TimeMs = 0
    key: str = ""
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class MassSilence:
    """More than half of at least three processes sent their last heartbeats within about one heartbeat.

    That is one fault of Redis or the network, and not the death of each of them.

    Attributes:
        count, fleet: how many are silent, and of how many.
        since_ms, until_ms: their last heartbeat, and until when the first of them makes ids; on the Redis clock.
    """

    count: int
    fleet: int
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a pool at one moment.

    Attributes:
        info: the pool.
        workers: all that are alive, by worker id.
        unknown: workers whose lease ended as far as Redis remembers, which may have forgotten renewals; the floor has
            not passed yet, and they can be adopted.
        deaths: workers that died or are gone since the last hour, the newest first, without those that returned.
        silent: workers whose leases ended and that may live, the newest first.
        mass_silence: what most of the silent workers have in common; None: nothing.
        idle: worker ids that were leased and are not, if they were asked for: of dead processes, and released ones.
        claims: how many processes claimed worker ids in the last hour.
        lanes_until_ms: end of the last outage lane that a process has which lost its lease since the floor was raised.
        refusal: why Redis takes no renewal of the process that looks; None if it does, or if that process has no lease.
    """

    info: PoolInfo
    workers: tuple[WorkerInfo, ...]
    unknown: tuple[WorkerInfo, ...] = ()
    deaths: tuple[EndedLease, ...] = ()
    silent: tuple[EndedLease, ...] = ()
    mass_silence: MassSilence | None = None
    idle: tuple[WorkerInfo, ...] = ()
    claims: int = 0
    lanes_until_ms: int = 0
    refusal: Refusal | None = None

    def in_state(self, state: str) -> list[WorkerInfo]:
        """Return the living workers in *state*, one of STATES."""
        return [worker for worker in self.workers if worker.state == state]

    @property
    def lasting_ms(self) -> list[int]:
        """For how long each worker that makes ids goes on without Redis; the shortest time first."""
        return sorted(each.lasts_until_ms - self.info.now_ms for each in self.workers if each.state != "no-ids")

    @property
    def makes_ids(self) -> bool:
        """True if a process can make ids now: it has a reservation, or would get one at once."""
        info = self.info
        may_claim = info.floor_ms <= info.now_ms and info.free > 0
        has_ids = any(worker.state != "no-ids" for worker in self.workers) or self.has_outage_lanes
        return info.now_ms < info.layout_end_ms and (has_ids or may_claim)

    @property
    def has_outage_lanes(self) -> bool:
        """True if processes of which Redis knows no lease make ids in outage lanes.

        They say so when they lose their leases, within a heartbeat after a floor was raised. Until then they may.
        """
        info = self.info
        if not info.outage_reserve_ms or self.is_new:
            return False
        is_silent = any(each.lasts_until_ms > info.now_ms for each in self.silent)
        return self.awaits_adoptions or is_silent or self.lanes_until_ms > info.now_ms

    @property
    def awaits_adoptions(self) -> bool:
        """True within a heartbeat after the floor was raised: living workers that Redis has forgotten are adopted."""
        return self.info.now_ms - (self.info.raised_ms or 0) < self.info.heartbeat_ms

    @property
    def is_new(self) -> bool:
        """True if the pool never had a worker, as far as Redis knows."""
        return self.info.claims + self.info.adopted + self.info.lost == 0

    @property
    def use(self) -> str:
        """Return the number of leased worker ids, as a clause for people."""
        info, silent = self.info, len(self.in_state("silent"))
        by = f", {silent:,} of them by processes that renew no more" if silent else ""
        return f"{info.used:,} of {info.capacity:,} worker ids are leased{by}"

    @property
    def worker_ids(self) -> list[WorkerInfo]:
        """Living, unknown and idle workers, by worker id."""
        both = {info.worker: info for info in (*self.unknown, *self.idle, *self.workers)}
        return sorted(both.values(), key=lambda info: info.worker)


def stored_int(text: str) -> int | None:
    """Return a number that Redis stores as *text*; None for a text that no script writes as a number."""
    return int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else None


@functools.lru_cache(maxsize=100)
def setting_ms(signature: str, name: str) -> int:
    """Return the setting *name* of a signature, in ms; 0 if it is absent."""
    return stored_int(protocol.signature_fields(signature).get(name, "")) or 0


def floor_length_ms(signature: str) -> int:
    """Return how long new workers of a pool wait after Redis may have lost something, as PoolConfig.floor_ms."""
    constants = ("ttl_ms", "max_clock_lead_ms", "redis_skew_ms", "failover_slack_ms")
    return sum(setting_ms(signature, name) for name in constants)


def state_of(
    heartbeat_age_ms: int, lease_left_ms: int, ttl_ms: int, *, claimed: bool = True, confirmed: bool = True
) -> str:
    """Classify a worker as one of STATES.

    healthy: the last heartbeat is younger than half a ttl. late: younger than two thirds, so that at least one is
    missing. silent: older, but the lease is still valid. no-ids: it sends heartbeats, and makes no ids.
    expired: the lease ended without a release. unknown: so it did, but Redis may have forgotten renewals. free: the
    worker id was released.
    """
    if not claimed:
        return "free"
    if lease_left_ms <= 0:
        return "expired" if confirmed else "unknown"
    if heartbeat_age_ms * 2 < ttl_ms:
        return "healthy"
    return "late" if heartbeat_age_ms * 3 < 2 * ttl_ms else "silent"


def time_text(time_ms: int) -> str:
    """Return a time for people, in UTC."""
    # events are untrusted, and may say a negative one
    return (utc_text(time_ms) if time_ms >= 0 else None) or f"{time_ms} ms"
