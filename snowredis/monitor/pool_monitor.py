"""PoolMonitor: the state and the history of a pool. It only reads. PoolPoller reads the state again and again.

Its readings survive an outage: the last snapshot is kept, and since when it is stale. After an outage, leases may have
ended whose processes live. They renew their leases with their next heartbeat, so they are silent, and not dead, for two
heartbeats.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from snowredis.core.values import duration
from snowredis.errors import ConfigError, PoolNotFound, SnowredisError, StoreRefused, StoreUnavailable
from snowredis.monitor import deaths, events
from snowredis.monitor.deaths import Acknowledgement, RecentEvents
from snowredis.monitor.events import Entry, Event, Follower
from snowredis.monitor.owner import count
from snowredis.monitor.pool_reader import MemoryPoolReader, PoolReader, RedisPoolReader, list_pools
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, EndedLease, PoolInfo, Snapshot, WorkerInfo, stored_int
from snowredis.monitor.status import Status, status_of, status_without
from snowredis.process.clock import now_ms
from snowredis.servers.clients import OwnClient, close_client, open_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.settings import MEMORY_POOL, SETTINGS, check, is_in_memory, required_pool, url_to_look_at

if TYPE_CHECKING:
    from snowredis.monitor.whois import Whois

# pools that an error names
_MAX_NAMED = 10


def shown_ms(info: PoolInfo) -> int:
    """Return for how long a lease that ended without a release is shown: its process may be silent for a whole lane."""
    return max(DEATH_SHOWN_MS, info.outage_reserve_ms)


class PoolMonitor:
    """A pool in a Redis, or in memory, as others see it. Changes nothing.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a pool of snowredis.testing, of which whois() knows
            nothing.
        name: the pool's name; by default that of SNOWREDIS_POOL, else of the only pool there.

    Every method blocks for a few round trips and raises StoreUnavailable and its subclasses.
    """

    def __init__(self, url: Any = None, name: str | None = None) -> None:
        if name is not None or SETTINGS["pool"].variable in os.environ:
            self.name = check("pool", required_pool(name, url))
        url = url_to_look_at(url)
        self._memory: Any = url if is_in_memory(url) else None
        self._server: OwnClient | None = None if self._memory else open_client(url)
        self._recent = RecentEvents(self._entries)

    @functools.cached_property
    def name(self) -> str:
        """Name of the pool; if none was given, that of the only pool there. Raises ConfigError."""
        names = self.pools()
        if self._memory:
            return MEMORY_POOL
        if len(names) == 1:
            return names[0]
        if not names:
            raise ConfigError(
                f"there is no pool at {self.where}. If one is new, create it once: snowredis pool create NAME"
            )
        raise ConfigError(
            f"no pool is named, and there are {len(names)} at {self.where}: {', '.join(sorted(names)[:_MAX_NAMED])}. "
            "Set SNOWREDIS_POOL, or name the pool."
        )

    def __repr__(self) -> str:
        return f"<snowredis.{type(self).__name__} {self.name!r} at {self.where}>"

    @property
    def where(self) -> str:
        """The address of the server, without password."""
        return "memory" if self._server is None else self._server.where

    @property
    def server(self) -> OwnClient:
        """The client of the server. Raises ConfigError for a pool in memory."""
        if self._server is None:
            raise ConfigError("this needs a Redis, and the pool is in memory. Nothing was changed.")
        return self._server

    @property
    def client(self) -> Any:
        """The redis-py client of the server. Raises as *server*."""
        return self.server.client

    def _read(self) -> PoolReader:
        """Return a reading of the pool. Raises PoolNotFound."""
        if self._server is None:
            return MemoryPoolReader(self._memory, self.name)
        return RedisPoolReader(self._server.client, self.name)

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Return the workers, ordered by worker id. Raises PoolNotFound."""
        return self._read().workers(alive_only=alive_only)

    def info(self) -> PoolInfo:
        """Return settings and counters. Raises PoolNotFound."""
        return self._read().info()

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        """Return the pool, its workers, and the deaths of the last hour, as of one moment. Raises PoolNotFound.

        Args:
            idle: whether worker ids without a lease are read, too.

        Blocks:
            once a lease has ended without a release, the first call also for 25 ms for each 1,000 events of the last
            hour, or of outage_reserve; later calls read only new ones.
        """
        state, expired = self._read().state(idle=idle)
        info = state.info
        # read after the state: what a script wrote meanwhile is among the events, and nothing is in neither. As long as
        # the pool has counted no end but releases, no older event says anything of deaths; it may have lost its counts
        if info.deaths + info.returned + info.lost or info.floor_ms > (info.raised_ms or 0):
            recent, claims = self._recent.read(info.now_ms, info.now_ms - shown_ms(info))
        else:
            recent, claims = self._written(since=str(info.now_ms)), []
        written = [*map(events.expiry_of, expired), *recent]
        ended = deaths.ended_in(written, claims if written else ())
        ended = deaths.acknowledged(ended, self.acknowledgement() if ended else None)
        mass = deaths.mass_silence_in(ended, state.workers, info)
        died, silent = deaths.split(ended, mass, info)
        return replace(
            state,
            deaths=died,
            silent=silent,
            mass_silence=mass,
            # they are counted to compare the dead with
            claims=deaths.processes_claiming(claims, info.now_ms - DEATH_SHOWN_MS) if died else 0,
            lanes_until_ms=deaths.lanes_until_ms(written, info.raised_ms or 0),
        )

    def acknowledgement(self) -> Acknowledgement | None:
        """Return the newest statement that the deaths of this pool have been seen.

        None if there is none, no valid one, or no right to read it.
        """
        stored = None
        if self._server is not None:
            with contextlib.suppress(StoreRefused), translated(self.where):
                stored = self.client.get(deaths.acknowledgement_key(self.name))
        until_ms = stored_int(text_of(stored or b""))
        return None if until_ms is None else Acknowledgement(until_ms)

    # --- history ----------------------------------------------------------------------------------

    def events(self, *, newest: int | None = None) -> list[Event]:
        """Return the events of the pool by their times, the oldest first. A pool that does not exist has none.

        A lease that ended without a release is an event from that moment, also before a script writes it. Old events
        are trimmed.

        Args:
            newest: how many of the newest; None: all.

        Blocks:
            about 25 ms for each 1,000 events.
        """
        # in this order: an expiry may be in both, but never in neither
        happened = {event.key: event for event in (*self._expired(), *self._written(newest=newest))}
        merged = sorted(happened.values(), key=lambda event: event.order)
        return merged if newest is None else merged[max(0, len(merged) - newest) :]

    def follower(self, after: int | str, known: Iterable[str] = ()) -> Follower:
        """Return what reads the events as they happen, and goes on after an outage.

        Args:
            after: the id of an event, or ms since 1970 on the Redis clock.
            known: keys of expiries that the caller has seen before a script wrote them.
        """
        return Follower(self._written, self._expired, str(after), known)

    def _written(self, **which: Any) -> list[Event]:
        """Return the events in the stream; *which* as read_entries() takes it."""
        return events.parse_all(self._entries(**which))

    def _entries(self, **which: Any) -> list[Entry]:
        if self._server is None:
            return events.read_memory(self._memory, self.name, **which)
        return events.read_entries(self._server.client, self.name, **which)

    def _expired(self) -> list[Event]:
        """Return the ends of leases that no script has written yet; without a pool there are none."""
        with contextlib.suppress(PoolNotFound):
            return [events.expiry_of(each) for each in self._read().expired()]
        return []

    def whois(self, an_id: int) -> Whois:
        """Return which process of this pool made *an_id*, as far as it can be known.

        Blocks:
            about 0.8 s if the stream is full; Redis is busy for 20 ms of it.

        Raises:
            PoolNotFound, StoreUnavailable; InvalidId: a number that no id can be.
        """
        return self.whois_all([an_id])[0]

    def whois_all(self, ids: Sequence[int], info: PoolInfo | None = None) -> list[Whois]:
        """Return which process made each distinct id, in order; for an id that is given twice also possible causes.

        Args:
            info: the pool, if it was just read.

        Blocks and raises as whois(), once for all ids.
        """
        # most programs never ask
        from snowredis.monitor.whois import find_makers

        return find_makers(self.client, info or self._read().stored(), ids)

    def pools(self) -> list[str]:
        """Return the names of all pools on the server. Scans all its keys."""
        return [] if self._server is None else list_pools(self._server.client)

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        if self._server is not None and self._server.owned:
            close_client(self._server.client)


# --- repeated readings ----------------------------------------------------------------------------


class PlanAnswer(NamedTuple):
    """Answer to a question that people ask before they do something.

    Attributes:
        question: "restart": may I restart Redis now? "deploy": may I start a rolling deployment now?
        text: begins with "yes", "no", or what has to be kept to.
    """

    question: str
    text: str


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
        return () if self.snapshot is None or self.error is not None else answers(self.snapshot)


# a restart of Redis takes less than this, as does what goes wrong in it
RESTART_MS = 3_600_000


def answers(snapshot: Snapshot) -> tuple[PlanAnswer, ...]:
    """Return the answers of a pool that was just read."""
    return PlanAnswer("restart", _may_restart(snapshot)), PlanAnswer("deploy", _may_deploy(snapshot))


def _may_restart(snapshot: Snapshot) -> str:
    info, lasting_ms = snapshot.info, snapshot.lasting_ms
    wait = "" if info.settings.get("durability") == "assured" else f"{duration(info.floor_length_ms)} after "
    then = f"A process that starts meanwhile gets no ids until {wait}Redis is back"
    if not lasting_ms:
        return f"yes: no worker makes ids. {then}"
    if lasting_ms[0] >= RESTART_MS:
        who = "the only worker goes" if len(lasting_ms) == 1 else f"all {len(lasting_ms):,} workers go"
        return f"yes: {who} on for {duration(lasting_ms[0])}. {then}"
    short = sum(left_ms < RESTART_MS for left_ms in lasting_ms)
    rest = f"; the others go on for {duration(lasting_ms[short])}" if short < len(lasting_ms) else ""
    return (
        f"only if it is back within {duration(max(0, lasting_ms[0]))}: {short:,} of {count(len(lasting_ms), 'worker')} "
        f"can have no ids after that{rest}. {then}"
    )


def _may_deploy(snapshot: Snapshot) -> str:
    info, living = snapshot.info, len(snapshot.workers)
    if snapshot.mass_silence or snapshot.refusal:
        return "no: Redis takes no renewals, so a new worker may get no worker id"
    if info.floor_wait_ms:
        return f"in {duration(info.floor_wait_ms)}: new workers wait until then"
    needed = f"it needs {2 * living:,} worker ids ({living:,} living and as many new), and there are {info.capacity:,}"
    if living <= info.free:
        return f"yes: {needed}"
    if info.free <= 0:
        return f"no: {needed}, all leased"
    return f"only if at most {info.free:,} new workers start before old ones end: {needed}"


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
