"""WorkerPool: the state and the history of a pool; its creation and deletion by a person, and changes of its layout."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snowredis.core.collisions import layout_ids, prove
from snowredis.core.layout import Layout
from snowredis.core.values import utc_text
from snowredis.errors import ConfigError, LayoutMismatch, PoolBroken, PoolNotFound, SnowredisError, StoreUnavailable
from snowredis.monitor import deaths, events
from snowredis.monitor.deaths import Acknowledgement, RecentEvents
from snowredis.monitor.events import Entry, Event, Follower
from snowredis.monitor.pool_reader import MemoryPoolReader, PoolReader, RedisPoolReader, list_pools
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, PoolInfo, Snapshot, WorkerInfo
from snowredis.monitor.whois import Whois, find_makers
from snowredis.process.clock import now_ms
from snowredis.servers.clients import OwnClient, close_client, open_client
from snowredis.servers.runner import translated
from snowredis.settings import check, is_in_memory, pool_or_default, url_or_default
from snowredis.snowflake.administration import Early, Ends, PoolAdministration
from snowredis.snowflake.open import open_store, pool_config
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Absent, Created

# a longer time until a change of the layout is a mistake
MAX_DELAY_MS = 366 * 24 * 3600 * 1000


def shown_ms(info: PoolInfo) -> int:
    """Return for how long a lease that ended without a release is shown: its process may be silent for a whole lane."""
    return max(DEATH_SHOWN_MS, info.outage_reserve_ms)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        end_ms: the end of the pool, on the Redis clock. A pool of this name that is created later starts there.
        wait_ms: how long it is until then.
        over: whether a pool of this name can be created at once, with any settings; else from *end_ms* on.
        dropped: whether the settings of the pool could not be read, so that its keys were removed, as if Redis had
            lost them: new workers wait for the floor.
    """

    alive: int
    end_ms: int
    wait_ms: int
    over: bool
    dropped: bool = False


class WorkerPool:
    """A pool in a Redis, or in memory.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a pool of snowredis.testing, of which whois() knows
            nothing.
        name: the pool's name.

    Every method blocks for a few round trips and raises StoreUnavailable and its subclasses.
    """

    def __init__(self, url: Any = None, name: str | None = None) -> None:
        self.name = name = check("pool", pool_or_default(name))
        url = url_or_default(url)
        self._memory: Any = url if is_in_memory(url) else None
        self._server: OwnClient | None = None if self._memory else open_client(url)
        self._recent = RecentEvents(self._entries)

    def __repr__(self) -> str:
        return f"<snowredis.WorkerPool {self.name!r} at {self.where}>"

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
            the first call also for 25 ms for each 1,000 events of the last hour, or of outage_reserve; later calls read
            only new ones.
        """
        state, expired = self._read().state(idle=idle)
        info = state.info
        # read after the state: what a script wrote meanwhile is among the events, and nothing is in neither
        recent, claims = self._recent.read(info.now_ms, info.now_ms - shown_ms(info))
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
        """Return the newest statement that the deaths of this pool have been seen; None if there is none."""
        return None if self._server is None else deaths.read_acknowledgement(self.client, self.name)

    def acknowledge_deaths(self, *, until_ms: int | None = None) -> Acknowledgement:
        """Say that it has been seen who died or fell silent up to now: no viewer warns of them from now on.

        Args:
            until_ms: the newest that was seen, at_ms of EndedLease; None: all up to now.

        Raises:
            PoolNotFound; ConfigError: a pool in memory.
        """
        client = self.client
        info, before = self.info(), self.acknowledgement()
        until_ms = info.now_ms if until_ms is None else min(until_ms, info.now_ms)
        seen = Acknowledgement(max(until_ms, before.until_ms if before else 0))
        deaths.write_acknowledgement(client, self.name, seen, shown_ms(info))
        return seen

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
        """Return the events in the stream; *which* as read_events() takes it."""
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
        return find_makers(self.client, info or self._read().stored(), ids)

    def pools(self) -> list[str]:
        """Return the names of all pools on the server. Scans all its keys."""
        return [] if self._server is None else list_pools(self._server.client)

    def create(self, config: PoolConfig) -> bool:
        """Create the pool without a floor, so that its first worker does not wait, and outage lanes are open at once.

        For a person who knows that the pool is new: if a process of a pool of this name could make ids within the
        last outage_reserve, they can be repeated.

        Returns:
            False if it already exists with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: it exists with other settings.
        """
        store = open_store(self._memory if self._server is None else self._server, config, administers=True)
        reply = store.create(now_ms())
        return isinstance(reply, Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Give the pool the earliest end. A pool of this name that is created later starts there, with any settings.

        The end is behind everything that was granted: at once if all workers ended in an orderly way, else when their
        reservations have ended. Living generators make ids until then.

        Raises:
            PoolNotFound; ConfigError: workers are alive, or the settings of the pool cannot be read, and *force* is
                not set. In the second case, *force* removes the keys of the pool.
            StoreUnavailable: also if a replica does not have the end. Repeat it then.
        """
        try:
            info = self.info()
        except (PoolNotFound, StoreUnavailable) as error:
            with translated(self.where):
                # damaged, or only parts remain
                key, *_ = pool_keys(self.name)
                if not self.client.exists(key) or (self.client.hexists(key, "over") and not force):
                    raise
            return self._drop(str(error), force=force)
        alive = len(self.workers())
        if alive and not force:
            raise ConfigError(
                f"pool {self.name!r} has {alive} living {'worker' if alive == 1 else 'workers'}; nothing was deleted. "
                "Stop them first, or delete it nevertheless with force=True (--force)."
            )
        try:
            reply = PoolAdministration(self.server, config_of(info)).end(now_ms())
        except (ConfigError, LayoutMismatch, PoolBroken) as error:
            return self._drop(str(error), force=force)
        if not isinstance(reply, Ends):
            raise PoolNotFound(self.name)
        if reply.next_signature:
            raise ConfigError(
                f"pool {self.name!r} already ends at {utc_text(reply.end_ms)}, and a pool with another layout starts "
                "there. An end cannot be changed; nothing was deleted."
            )
        return Deletion(alive, reply.end_ms, max(0, reply.end_ms - reply.redis_ms), reply.over)

    def _drop(self, reason: str, *, force: bool) -> Deletion:
        """Remove the keys of a pool that cannot be given an end, as if Redis had lost it."""
        if not force:
            raise ConfigError(
                f"{reason.rstrip('.')}. So it cannot be said when its reservations end, and nothing was deleted. With "
                "force=True (--force) its keys are removed, as if Redis had lost them: new workers wait, and outage "
                "lanes are closed for a day."
            )
        alive = 0
        with contextlib.suppress(SnowredisError):
            alive = len(self.workers())
        with translated(self.where):
            self.client.delete(*pool_keys(self.name))
        return Deletion(alive, 0, 0, over=True, dropped=True)

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        if self._server is not None and self._server.owned:
            close_client(self._server.client)


# --- change of the layout --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A change of layout that was planned.

    Attributes:
        at_ms: the end of the old layout, on the Redis clock: its ids have earlier times, those of the new one this or
            later ones.
        sorted: whether every new id is greater than every old one.
    """

    at_ms: int
    sorted: bool


def config_of(info: PoolInfo) -> PoolConfig:
    """Return the constants of the pool as it is stored."""
    registration = info.settings.get("registry", "").partition("/")[2]
    config = pool_config({"pool": info.name} | info.options)
    return replace(config, registration=registration)


def check_change(info: PoolInfo, layout: Layout, at_ms: int) -> bool:
    """Prove that ids of *layout* after *at_ms* equal none of all layouts that the pool had, or raise.

    Returns:
        whether all new ids are greater than all old ones.

    Raises:
        ConfigError: the change is refused, with the reason.
    """
    config = config_of(info)
    if layout == info.layout:
        raise ConfigError(f"pool {info.name!r} has this layout already. Nothing was changed.")
    place = (info.layout.datacenter_bits, info.layout.datacenter_shift)
    if config.registry and place != (layout.datacenter_bits, layout.datacenter_shift):
        raise ConfigError(
            f"pool {info.name!r} has the number {config.datacenter} of registry {config.registry!r}, and the new "
            "layout has its datacenter bits in another place, where other pools may have other bits. Nothing "
            "was changed. Use a layout with the same datacenter bits in the same place."
        )
    numbers = (config.datacenter, config.datacenter)
    # refuses a datacenter that does not fit
    config.with_layout(layout)
    floor_ms, in_order = at_ms, True
    # the present layout is the last one, or the last but one if a change is planned, which this one replaces
    past = info.layouts[: -2 if info.changes_ms else -1]
    spans = [(period.layout, period.from_ms, period.until_ms or floor_ms) for period in past]
    for old, from_ms, until_ms in [*spans, (info.layout, spans[-1][2] if spans else 0, floor_ms)]:
        try:
            ids = layout_ids(old, from_ms=max(from_ms, old.epoch_ms), until_ms=until_ms - 1, datacenters=numbers)
        except ConfigError:
            # no id was made in that time
            continue
        proof = prove(ids, layout, start_ms=floor_ms, datacenters=numbers)
        if proof.common is not None:
            raise ConfigError(
                f"ids of the layout {old}, which pool {info.name!r} has or had, and of the new layout {layout} can be "
                f"equal: {proof.common.size:,} of them, for example {proof.common.lowest}. Nothing was changed. Choose "
                "a layout whose ids are greater: the timestamp bits in the same place or further left, and an epoch "
                "that is not later; see `snowredis migrate proof`."
            )
        in_order = in_order and proof.sorted
    return in_order


def change_layout(pool: WorkerPool, layout: Layout, *, delay_ms: int = 0) -> LayoutChange:
    """Give *pool* an end after *delay_ms*, from which on it has *layout*, if no id can be repeated.

    It cannot be undone. Processes make ids of the old layout until the end, and none after it.

    Args:
        delay_ms: 0: as soon as possible, which is behind all outage lanes.

    Raises:
        ConfigError: it is refused, with the reason; nothing was changed.
        PoolNotFound, LayoutMismatch.
        StoreUnavailable: also if a replica does not have the end. Repeat it then.
    """
    info = pool.info()
    if delay_ms > MAX_DELAY_MS:
        raise ConfigError(f"{delay_ms} ms are over a year. Nothing was changed.")
    store = PoolAdministration(pool.server, config_of(info))
    at_ms = info.now_ms + delay_ms
    check_change(info, layout, at_ms)
    reply = store.end(now_ms(), layout=layout, at_ms=at_ms)
    if isinstance(reply, Early) and not delay_ms:
        # leases may be extended meanwhile
        at_ms = reply.earliest_ms + 2 * info.ttl_ms
        check_change(info, layout, at_ms)
        reply = store.end(now_ms(), layout=layout, at_ms=at_ms)
    if isinstance(reply, Absent):
        raise PoolNotFound(info.name)
    if isinstance(reply, Early):
        raise ConfigError(
            f"workers of pool {info.name!r} have reservations beyond that moment, in which they may make ids of the "
            "old layout as long as they do not reach Redis. Nothing was changed. Plan it for "
            f"{utc_text(reply.earliest_ms)} or later: in {math.ceil((reply.earliest_ms - info.now_ms) / 1000)} s."
        )
    if reply.next_signature != store.config.with_layout(layout).signature:
        raise ConfigError(
            f"pool {info.name!r} already ends at {utc_text(reply.end_ms)}, and "
            f"{'a pool with other settings starts there' if reply.next_signature else 'any pool may start there'}. "
            "An end cannot be changed."
        )
    return LayoutChange(reply.end_ms, check_change(info, layout, reply.end_ms))
