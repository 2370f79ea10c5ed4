"""The state of a pool at one moment: its settings and counters, and all its leases. Pure."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from snowredis.core.as_json import Hidden, NowMs, Shown, TimeMs, in_json
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import resolve_layout
from snowredis.monitor.lease import Lease
from snowredis.settings import POOL_DURATIONS
from snowredis.signatures import fields_of
from snowredis.snowflake.protocol.pool_config import PoolConfig, default_outage_reserve_ms

# fields of PoolInfo that count events
COUNTERS = ("claims", "refused", "releases", "expired", "died", "returned", "lost", "adopted", "alarms", "mismatches")
# how long a lease is shown that ended without a release
SHOWN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """Settings and counters of a pool. Times are ms since 1970 on the Redis clock.

    Attributes:
        name: its name.
        layout: the present layout.
        config: its constants.
        now_ms, created_ms: time of the reading, and of the creation of the pool; 0 if unknown.
        floor_ms: no new worker starts before it; 0 if there never was a floor.
        floor_reason: why the floor was raised last, a code of FloorReason; empty if it never was.
        incarnation: changes whenever the floor is raised.
        capacity, used, free, peak: worker ids in all, leased, available, and the most that were leased at once.
        claims, releases: worker ids that were claimed, and that were released.
        refused: claims that gave up, since all worker ids were leased.
        expired, died, returned, lost: leases that ended in this way, see the glossary; returned: after it had expired.
        adopted: leases that Redis had forgotten and that were accepted again.
        alarms: how often ids may have been repeated.
        alarm_from_ms, alarm_until_ms: the times between which ids may have been repeated; 0 if there is no alarm.
        mismatches: claims of processes with other settings, such as another layout, that were refused.
        mismatch_ms: when the last of them was refused; 0 if none was.
        mismatch_by: the last such processes as host:pid (label), the newest first; untrusted text.
        end_ms: the end of the pool, of which no reservation reaches beyond; 0 if it has none.
        end_counts: whether each copy of the pool that can come back has that end; until then nothing starts there.
    """

    name: str
    layout: Layout
    config: Annotated[PoolConfig, Shown("hidden")]
    now_ms: NowMs
    created_ms: TimeMs
    floor_ms: TimeMs
    capacity: int
    used: int
    free: int
    peak: int = 0
    incarnation: Hidden = ""
    claims: int = 0
    refused: int = 0
    releases: int = 0
    expired: int = 0
    died: int = 0
    returned: int = 0
    lost: int = 0
    adopted: int = 0
    floor_reason: str = ""
    alarms: int = 0
    alarm_from_ms: TimeMs = 0
    alarm_until_ms: TimeMs = 0
    mismatches: int = 0
    mismatch_ms: TimeMs = 0
    mismatch_by: str = ""
    end_ms: TimeMs = 0
    end_counts: bool = False

    @property
    @in_json
    def settings(self) -> dict[str, str]:
        """The constants by name, as the pool stores them: layout, datacenter, ttl_ms, …"""
        return fields_of(self.config.signature)

    @property
    def options(self) -> dict[str, Any]:
        """The constants of the pool as arguments of connect()."""
        config, durations = self.config, {name: getattr(self.config, f"{name}_ms") / 1000 for name in POOL_DURATIONS}
        if config.outage_reserve_ms == default_outage_reserve_ms(config.layout, config.ttl_ms):
            # it follows the layout, which the caller may replace
            del durations["outage_reserve"]
        others = {
            "layout": layout_spec(config.layout),
            "datacenter": config.datacenter,
            "durability": config.durability,
        }
        return others | durations

    @property
    @in_json
    def layout_end_ms(self) -> TimeMs:
        """First ms that does not fit the layout's timestamp bits."""
        return self.layout.end_ms

    @property
    def floor_wait_ms(self) -> int:
        """Time until the floor has passed, so that new workers are served; 0 if it has."""
        return max(0, self.floor_ms - self.now_ms)

    @property
    @in_json
    def heartbeat_ms(self) -> int:
        """Time between two heartbeats of a worker."""
        return self.config.heartbeat_ms

    @property
    def raised_ms(self) -> int:
        """When the floor was raised, with which the incarnation begins; 0 if that is unknown."""
        return stored_int(self.incarnation.partition("-")[0]) or 0


class Refusal(NamedTuple):
    """Why Redis takes no renewal from this process, though it may reply, and since when on the Redis clock."""

    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a pool at one moment.

    Attributes:
        info: the pool.
        living: the leases that are valid, by worker id.
        ended: the leases that ended without a release, the newest first: of the last hour, and older ones as long as
            their processes may make ids. A silent one is among them if Redis may have forgotten its renewals.
        claims: how many processes claimed worker ids in the last hour.
        lanes_until_ms: end of the last outage lane that a process may have which lost its lease and has no other since,
            or never renewed it.
        refusal: why Redis takes no renewal of the process that looks; None if it does, or if that process has no lease.
        is_back: Redis has just replied again: leases that ended meanwhile are renewed with the next heartbeat.
        unreadable: worker ids with records that no script wrote: whether they are leased is not known.
        has_history: whether the events could be read; else what they say of leases that ended is missing.
    """

    info: PoolInfo
    living: tuple[Lease, ...] = ()
    ended: tuple[Lease, ...] = ()
    claims: int = 0
    lanes_until_ms: int = 0
    refusal: Refusal | None = None
    is_back: bool = False
    unreadable: Annotated[tuple[int, ...], Shown("hidden")] = ()
    has_history: Annotated[bool, Shown("hidden")] = True

    @property
    def leases(self) -> tuple[Lease, ...]:
        """All of them."""
        return (*self.living, *self.ended)

    def in_state(self, *states: str) -> list[Lease]:
        """Return the leases in one of *states*."""
        return [each for each in self.leases if each.state in states]

    @property
    def lasting_ms(self) -> list[int]:
        """For how long each process that renews its lease goes on without Redis; the shortest time first."""
        return sorted(each.ids_until_ms - self.info.now_ms for each in self.living if each.state != "no-ids")

    @property
    def makes_ids(self) -> bool:
        """True if a process can make ids now: it has a reservation, or would get one at once."""
        info = self.info
        may_claim = info.floor_ms <= info.now_ms and info.free > 0
        has_ids = any(each.state != "no-ids" for each in self.living) or self.has_outage_lanes
        return info.now_ms < info.layout_end_ms and (has_ids or may_claim)

    @property
    def has_outage_lanes(self) -> bool:
        """True if processes of which Redis knows no lease may make ids in outage lanes.

        They say so when they lose their leases, within a heartbeat after a floor was raised. Until then they may.
        """
        info = self.info
        if not info.config.outage_reserve_ms or self.is_new:
            return False
        may_live = any(each.ids_until_ms > info.now_ms for each in self.ended)
        return self.awaits_adoptions or may_live or self.lanes_until_ms > info.now_ms

    @property
    def awaits_adoptions(self) -> bool:
        """True within a heartbeat after the floor was raised: living workers that Redis has forgotten are adopted.

        After `pool create` the floor is in the past: a person says that there are none.
        """
        info = self.info
        is_loss = info.floor_ms - info.raised_ms >= info.config.ttl_ms
        return is_loss and info.now_ms - info.raised_ms < info.heartbeat_ms

    @property
    def is_new(self) -> bool:
        """True if the pool never had a worker, as far as Redis knows."""
        return self.info.claims + self.info.adopted + self.info.lost == 0


def stored_int(text: str) -> int | None:
    """Return a number that Redis stores as *text*; None for a text that no script writes as a number."""
    return int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else None


# numbers in a signature
_NUMBERS = ("datacenter", "ttl_ms", "max_clock_lead_ms", "failover_slack_ms", "outage_reserve_ms")


@functools.lru_cache(maxsize=100)
def config_in(signature: str, name: str) -> PoolConfig:
    """Return the constants in the *signature* of a pool. Raises KeyError, ValueError if no script stored it."""
    stored = fields_of(signature)
    numbers = {number: int(stored[number]) for number in _NUMBERS}
    return PoolConfig(name=name, layout=resolve_layout(stored["layout"]), durability=stored["durability"], **numbers)
