"""WorkerPool: the state and the history of a pool on all its servers; its creation and deletion by a person."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from snowredis.errors import ConfigError, PoolNotFound
from snowredis.monitor import deaths, events
from snowredis.monitor.deaths import Acknowledgement, RecentEvents
from snowredis.monitor.events import Event, Follower, Source, check_stream_id
from snowredis.monitor.pool_reader import MemoryPoolReader, PoolReader, RedisPoolReader, ServerState, list_pools
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, POOL_COUNTERS, EndedLease, PoolInfo, Snapshot, WorkerInfo
from snowredis.monitor.whois import Whois, find_makers
from snowredis.servers.clients import address, close_client
from snowredis.servers.runner import translated
from snowredis.settings import check, pool_or_default, url_or_default
from snowredis.snowflake.open import is_in_memory, open_client, open_store, servers_of
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Created, Deleted

T = TypeVar("T")

# fields of PoolInfo that are sums over all servers
_SUMMED = ("capacity", "used", "free", "peak", *POOL_COUNTERS)


def shown_ms(info: PoolInfo) -> int:
    """Return for how long a lease that ended without a release is shown: its process may be silent for a whole lane."""
    return max(DEATH_SHOWN_MS, info.outage_reserve_ms)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        wait_ms: how long new workers of a pool of this name have to wait.
        other_wait_ms: the same of a pool with another layout or without outage lanes: those of this one count, too.
        guessed: whether the settings of the pool could not be read, so that the wait is derived from the defaults and
            its records.
    """

    alive: int
    wait_ms: int
    guessed: bool
    other_wait_ms: int = 0


class WorkerPool:
    """A pool in one Redis, or in several independent ones.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a list of those; or a pool of snowredis.testing, of
            which whois() knows nothing.
        name: the pool's name.

    Every method blocks for a few round trips to each server and raises StoreUnavailable and its subclasses.
    """

    def __init__(self, url: Any = None, name: str | None = None) -> None:
        self.name = name = check("pool", pool_or_default(name))
        urls = servers_of(url_or_default(url))
        if not urls:
            raise ConfigError("the list of URLs is empty. List one server or more.")
        in_memory = [is_in_memory(url) for url in urls]
        if any(in_memory) and not all(in_memory):
            raise ConfigError("pools in memory and in Redis cannot be read together. List servers of one kind.")
        self._servers = [] if any(in_memory) else [open_client(url) for url in urls]
        self._clients = [server.client for server in self._servers]
        # where the pool is, and what reads from there
        self._places: list[Any] = self._clients or list(urls)
        self._reader: Callable[[Any, str], PoolReader] = RedisPoolReader if self._clients else MemoryPoolReader
        # with the worker ids of the whole pool
        self._events = [
            Source(functools.partial(self._written, index), functools.partial(self._expired, index))
            for index in range(len(self._places))
        ]
        self._recent = [RecentEvents(source.read) for source in self._events]

    def __repr__(self) -> str:
        return f"<snowredis.WorkerPool {self.name!r} at {self.where}>"

    @property
    def where(self) -> str:
        """The addresses of the servers, without passwords."""
        return ", ".join(map(address, self._clients)) or "memory"

    def only_server(self) -> Any:
        """Return the client of the only server. Raises ConfigError for several, and for a pool in memory."""
        if len(self._servers) != 1:
            raise ConfigError(
                f"this needs one server, and {self.where} is "
                f"{f'{len(self._servers)} servers' if self._servers else 'no server'}. Nothing was changed."
            )
        return self._servers[0]

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Return the workers, ordered by worker id. Raises PoolNotFound.

        Of several servers, one that lost the pool counts as one without workers; one that is unavailable is an error.
        """
        per_server = self._each(lambda reader: reader.workers(alive_only=alive_only))
        return sorted(
            (self._numbered_worker(info, i) for i, infos in per_server for info in infos),
            key=lambda info: info.worker,
        )

    def _numbered_worker(self, info: WorkerInfo, index: int) -> WorkerInfo:
        """Return *info* of the server *index* with its worker id in the whole pool."""
        return replace(info, worker=info.worker * len(self._places) + index)

    def info(self) -> PoolInfo:
        """Return settings and counters; of several servers the first one's, with sums of their numbers.

        Raises PoolNotFound.
        """
        return self._sum([info for _, info in self._each(PoolReader.info)])

    def _sum(self, infos: list[PoolInfo]) -> PoolInfo:
        """Return the info of the pool on several servers."""
        summed = {name: sum(getattr(info, name) for info in infos) for name in _SUMMED}
        alarmed = max(infos, key=lambda info: info.alarm_until_ms)
        refused = max(infos, key=lambda info: info.mismatch_ms)
        # a new worker is served as soon as the first server has passed its floor
        first = min(infos, key=lambda info: info.floor_ms)
        return replace(
            infos[0],
            **summed,
            alarm=next((info.alarm for info in [alarmed, *infos] if info.alarm), ""),
            alarm_from_ms=alarmed.alarm_from_ms,
            alarm_until_ms=alarmed.alarm_until_ms,
            mismatch_ms=refused.mismatch_ms,
            mismatch_by=refused.mismatch_by,
            floor_ms=first.floor_ms,
            floor_reason=first.floor_reason,
        )

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        """Return the pool, its workers, and the deaths of the last hour, as of one moment. Raises PoolNotFound.

        Args:
            idle: whether worker ids without a lease are read, too.

        Blocks:
            the first call also for 25 ms for each 1,000 events of the last hour, or of outage_reserve; later calls read
            only new ones.
        """
        states = self._each(lambda reader: reader.state(idle=idle))

        def numbered(of: Callable[[ServerState], list[WorkerInfo]]) -> tuple[WorkerInfo, ...]:
            infos = (self._numbered_worker(info, index) for index, state in states for info in of(state))
            return tuple(sorted(infos, key=lambda info: info.worker))

        info = self._sum([state.info for _, state in states])
        expired = [
            self._numbered(events.expiry_of(ended), index)
            for index, state in states
            for ended in state.ended
            if ended.state == "expired"
        ]
        # after the state: what a script wrote meanwhile is among the events, and nothing is in neither
        written, claims = self._recent_events(expired, info)
        workers, ended = numbered(lambda state: state.alive), deaths.ended_in(written, claims)
        ended = deaths.acknowledged(ended, self.acknowledgement() if ended else None)
        mass = deaths.mass_silence_in(ended, workers, info)
        died, silent = deaths.split(ended, mass, info)
        return Snapshot(
            info,
            workers=workers,
            unknown=numbered(lambda state: [each for each in state.ended if each.state == "unknown"]),
            deaths=died,
            silent=silent,
            mass_silence=mass,
            idle=numbered(lambda state: state.idle),
            claims=sum(at_ms > info.now_ms - DEATH_SHOWN_MS for at_ms, _ in claims),
            lanes_until_ms=deaths.lanes_until_ms(written, info.raised_ms or 0),
        )

    def deaths(self) -> list[EndedLease]:
        """Return the processes that died in the last hour, the newest first."""
        return list(self.snapshot().deaths)

    def _recent_events(self, expired: list[Event], info: PoolInfo) -> tuple[list[Event], list[tuple[int, str]]]:
        """Return the *expired* leases with the events of the last hours, and the claims; see RecentEvents.read()."""
        written, claims = list(expired), list[tuple[int, str]]()
        for recent in self._recent:
            found, claimed = recent.read(info.now_ms, info.now_ms - shown_ms(info))
            written += found
            claims += claimed
        return written, claims

    def acknowledgement(self) -> Acknowledgement | None:
        """Return the newest statement that the deaths of this pool have been seen; None if there is none."""
        found = [deaths.read_acknowledgement(client, self.name) for client in self._clients]
        return max((each for each in found if each), key=lambda each: each.until_ms, default=None)

    def acknowledge_deaths(self, *, until_ms: int | None = None, by: str = "") -> Acknowledgement:
        """Say that it has been seen who died or fell silent up to now: no viewer warns of them from now on.

        Args:
            until_ms: the newest that was seen, at_ms of EndedLease; None: all up to now.
            by: who has seen them, for others.

        Raises:
            PoolNotFound; ConfigError: a pool in memory.
        """
        if not self._clients:
            raise ConfigError("a pool in memory stores no acknowledgement; a pool in Redis does")
        info, before = self.info(), self.acknowledgement()
        now_ms = info.now_ms
        until_ms = min(now_ms, now_ms if until_ms is None else until_ms)
        seen = Acknowledgement(max(until_ms, before.until_ms if before else 0), now_ms, by)
        for client in self._clients:
            deaths.write_acknowledgement(client, self.name, seen, shown_ms(info))
        return seen

    def _each(self, read: Callable[[PoolReader], T]) -> list[tuple[int, T]]:
        """Return the index and the result of every server that has the pool. Raises PoolNotFound."""
        results = []
        for index, place in enumerate(self._places):
            with contextlib.suppress(PoolNotFound):
                results.append((index, read(self._reader(place, self.name))))
        if not results:
            raise PoolNotFound(self.name)
        return results

    # --- history ----------------------------------------------------------------------------------

    def events(self, *, newest: int | None = None, since: int | str | None = None) -> list[Event]:
        """Return the events of the pool by their times, the oldest first. A pool that does not exist has none.

        A lease that ended without a release is an event from that moment, also before a script writes it. Old events
        are trimmed.

        Args:
            newest: how many of the newest; None: all.
            since: only events after this: ms since 1970, or the id of an event (of one server only).

        Blocks:
            about 25 ms for each 1,000 events.

        Raises:
            StoreUnavailable; ConfigError: *since* is not valid.
        """
        place = None if since is None else check_stream_id(str(since))
        since_ms = int(place.partition("-")[0]) if place else -1
        happened: dict[str, Event] = {}
        for source in self._events:
            # in this order: an expiry may be in both, but never in neither
            derived = [event for event in source.read_ended() if event.at_ms > since_ms]
            written = source.read(newest=newest, since=place)
            happened |= {event.key: event for event in (*derived, *written)}
        merged = sorted(happened.values(), key=lambda event: event.order)
        return merged if newest is None else merged[max(0, len(merged) - newest) :]

    def _numbered(self, event: Event, index: int) -> Event:
        """Return *event* of the server *index* with its worker id in the whole pool."""
        count = len(self._places)
        if count == 1:
            return event
        return replace(event, worker=event.worker * count + index if event.worker >= 0 else -1, server=index)

    def follow(self, after: int | str = "$", *, block_ms: int = 500) -> Iterator[Event | None]:
        """Yield events as they happen, and None after each *block_ms* without one, so that the caller can stop.

        A lease that ends without a release is an event at once, also if no script runs. It comes once.

        Args:
            after: "$": from now on; ms since 1970; or the id of an event (of one server only).
            block_ms: how long to wait before the pool is read again.

        Raises:
            StoreUnavailable: call it again with the id of the last event that has one; an expiry may be yielded again.
        """
        follower = self.follower(after)
        while True:
            happened = follower.read()
            yield from happened
            if not happened:
                time.sleep(block_ms / 1000)
                yield None

    def follower(self, after: int | str = "$", known: Iterable[str] = ()) -> Follower:
        """Return what reads the events as they happen, and goes on after an outage; arguments as of Follower."""
        return Follower(self._events, after if after == "$" else check_stream_id(str(after)), known)

    def _written(self, index: int, **which: Any) -> list[Event]:
        """Return the events in the stream of the server *index*; *which* as read_events() takes it."""
        read = events.read_events if self._clients else events.read_memory
        return [self._numbered(event, index) for event in read(self._places[index], self.name, **which)]

    def _expired(self, index: int) -> list[Event]:
        """Return the ends of leases that no script has written yet; without a pool there are none."""
        with contextlib.suppress(PoolNotFound):
            ended = self._reader(self._places[index], self.name).expired()
            return [self._numbered(events.expiry_of(each), index) for each in ended]
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
        if not self._clients:
            raise ConfigError("a pool in memory has no history; whois needs a Redis")
        info = info or self._sum([info for _, info in self._each(PoolReader.stored)])
        return find_makers(self._clients, info, ids)

    def pools(self) -> list[str]:
        """Return the names of all pools on the servers. Scans all their keys."""
        return sorted({name for client in self._clients for name in list_pools(client)})

    def create(self, config: PoolConfig, caller_ms: int | None = None) -> bool:
        """Create the pool without a floor, so that its first worker does not wait.

        For a person who knows that the pool is new: if ids were made in a pool of this name and layout less than
        ttl + max_clock_lead + redis_skew ago, they can be repeated.

        Returns:
            False if it already exists with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: it exists with other settings.
            StoreUnavailable: of several independent servers, one is unavailable; nothing was created then.
        """
        store = open_store(self._servers, config)
        reply = store.create(time.time_ns() // 1_000_000 if caller_ms is None else caller_ms)
        return isinstance(reply, Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Delete the pool, whatever its settings, also a damaged one.

        Its floor remains until its reservations have ended: a new pool of this name, with any settings, starts above
        it, so no id is repeated. Living generators create the pool again with their next heartbeat and keep their
        worker ids, unless one with other settings was created meanwhile.

        Raises:
            PoolNotFound; ConfigError: workers are alive, and *force* is not set.
        """
        try:
            alive = len(self.workers())
        except PoolNotFound:
            # its signature is lost; other parts may remain
            alive = 0
        if alive and not force:
            raise ConfigError(
                f"pool {self.name!r} has {alive} living {'worker' if alive == 1 else 'workers'}; nothing was deleted. "
                "Stop them first, or delete it nevertheless with force=True (--force)."
            )
        now_ms, replies, floors_ms = time.time_ns() // 1_000_000, [], [0]
        for server in self._servers:
            replies.append(RedisStore(server, PoolConfig(name=self.name)).delete(now_ms))
            with translated(server.where):
                floors_ms.append(int(server.client.hget(pool_keys(self.name)[0], "outage_floor") or 0))
        deleted = [reply for reply in replies if isinstance(reply, Deleted)]
        if not deleted:
            raise PoolNotFound(self.name)
        wait_ms = max(0, *(reply.floor_ms - reply.redis_ms for reply in deleted))
        return Deletion(
            alive=alive,
            wait_ms=wait_ms,
            guessed=any(reply.guessed for reply in deleted),
            other_wait_ms=max(wait_ms, *(floor_ms - deleted[-1].redis_ms for floor_ms in floors_ms)),
        )

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        for server in self._servers:
            if server.owned:
                close_client(server.client)
