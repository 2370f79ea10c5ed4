"""Repeated readings of a pool that survive an outage: the last snapshot is kept, and since when it is stale.

After an outage, leases may have ended whose processes live. They renew their leases with their next heartbeat, so they
are silent, and not dead, for two heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.errors import PoolNotFound, SnowredisError, StoreUnavailable
from snowredis.monitor.fleet import PlanAnswer, answers
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.monitor.snapshot import EndedLease, PoolInfo, Snapshot, WorkerInfo
from snowredis.monitor.status import Status, status_of, status_without
from snowredis.process.clock import now_ms


@dataclass(frozen=True, slots=True)
class PoolReport:
    """State of a pool as JSON shows it, in the commands and over HTTP.

    Attributes:
        pool: settings and counters; null: the pool never could be read.
        status: the verdict.
        workers: those that are alive, by worker id.
        unknown: workers that are alive or dead: Redis may have forgotten their last heartbeats.
        deaths: processes that died in the last hour, the newest first.
        silent: processes whose leases ended and that may live, the newest first.
        answers: whether Redis may be restarted now, and whether a deployment may begin; none while that is unknown.
    """

    pool: PoolInfo | None
    status: Status
    workers: tuple[WorkerInfo, ...] = ()
    unknown: tuple[WorkerInfo, ...] = ()
    deaths: tuple[EndedLease, ...] = ()
    silent: tuple[EndedLease, ...] = ()
    answers: tuple[PlanAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of one reading.

    Attributes:
        status: the verdict.
        snapshot: what was read last; None: the pool never could be read. If it cannot be read now, the states of its
            workers are unknown.
        error: why it could not be read now; None if it could.
        read_at_ms: when *snapshot* was read, on this host's clock; 0 without one.
    """

    status: Status
    snapshot: Snapshot | None
    error: SnowredisError | None = None
    read_at_ms: int = 0

    @property
    def report(self) -> PoolReport:
        """The reading as JSON shows it; without a snapshot only the status."""
        if (snapshot := self.snapshot) is None:
            return PoolReport(None, self.status)
        leases = snapshot.workers, snapshot.unknown, snapshot.deaths, snapshot.silent
        return PoolReport(snapshot.info, self.status, *leases, self.answers)

    @property
    def answers(self) -> tuple[PlanAnswer, ...]:
        """The answers to what people ask before they restart something; none if the pool could not be read now."""
        if self.snapshot is None or self.error is not None:
            return ()
        info = self.snapshot.info
        return answers(self.snapshot, 0 if info.settings.get("durability") == "assured" else info.floor_length_ms)


class PoolPoller:
    """Reads a pool again and again. One caller at a time.

    Args:
        clock_ms: returns this host's time, ms since 1970.
    """

    def __init__(self, pool: PoolMonitor, clock_ms: Callable[[], int] = now_ms) -> None:
        self._pool, self._clock_ms = pool, clock_ms
        self._snapshot: Snapshot | None = None
        self._read_at_ms = 0
        self._failed_since_ms: int | None = None
        # leases that ended since the first time are silent until the second, both on the Redis clock
        self._outage_ms: tuple[int, int] = (0, 0)

    def read(self, *, idle: bool = False) -> Reading:
        """Read the pool; if that fails, return the last snapshot and the error. Blocks as PoolMonitor.snapshot()."""
        try:
            snapshot = self._pool.snapshot(idle=idle)
        except (PoolNotFound, StoreUnavailable) as error:
            now_ms, last = self._clock_ms(), self._snapshot
            since_ms = self._failed_since_ms = self._failed_since_ms or now_ms
            status = status_without(error, last, failed_since_ms=since_ms, now_ms=now_ms, last_read_ms=self._read_at_ms)
            if last is not None:
                # who was healthy then may be dead now
                last = replace(last, workers=tuple(replace(each, state="unknown") for each in last.workers))
            return Reading(status, last, error, self._read_at_ms)
        self._read_at_ms = self._clock_ms()
        if self._failed_since_ms is not None:
            info = snapshot.info
            began_ms = info.now_ms - (self._read_at_ms - self._failed_since_ms) - info.heartbeat_ms
            self._outage_ms = (began_ms, info.now_ms + 2 * info.heartbeat_ms)
        self._failed_since_ms = None
        self._snapshot = self._after_outage(snapshot)
        return Reading(status_of(self._snapshot), self._snapshot, None, self._read_at_ms)

    def _after_outage(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with those as silent that may return after an outage."""
        began_ms, settled_ms = self._outage_ms
        if snapshot.info.now_ms >= settled_ms:
            return snapshot

        def may_return(death: EndedLease) -> bool:
            return death.kind == "expired" and death.at_ms >= began_ms

        deaths = tuple(death for death in snapshot.deaths if not may_return(death))
        silent = (*filter(may_return, snapshot.deaths), *snapshot.silent)
        # they may all have been silent for as long as the outage
        return replace(snapshot, deaths=deaths, silent=silent, mass_silence=None)
