"""WorkerPool: the state and the history of a pool on all its servers; its creation and deletion by a person."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snowredis.embedded import FRESH_KEY
from snowredis.errors import ConfigError, PoolNotFound
from snowredis.lease.clients import address
from snowredis.lease.model import PoolConfig
from snowredis.lease.open import is_in_memory, open_client, open_store
from snowredis.lease.redis_store import RedisStore, translated
from snowredis.lease.replies import Created, Deleted
from snowredis.monitor import memory_reader, pool_reader
from snowredis.monitor.forecast import Forecast, forecast_of
from snowredis.monitor.history.events import (
    PAGE,
    Event,
    check_stream_id,
    follow_events,
    read_events,
)
from snowredis.monitor.history.whois import Whois, find_makers
from snowredis.monitor.snapshot import POOL_COUNTERS, PoolInfo, WorkerInfo
from snowredis.settings import check

# fields of PoolInfo that are sums over all servers
_SUMMED = ("capacity", "used", "free", "peak", *POOL_COUNTERS)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        wait_ms: how long new workers of a pool of this name have to wait.
        guessed: whether the settings of the pool could not be read, so that the wait is derived from the defaults and
            its records.
    """

    alive: int
    wait_ms: int
    guessed: bool


class WorkerPool:
    """A pool in one Redis, or in several independent ones.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a list of those; or a pool of snowredis.testing, which
            has workers and info but no events.
        name: the pool's name.

    Every method blocks for a few round trips to each server and raises StoreUnavailable and its subclasses.
    """

    def __init__(self, url: Any, name: str = "default") -> None:
        check("pool", name)
        urls = url if isinstance(url, list | tuple) else [url]
        if not urls:
            raise ConfigError("the list of URLs is empty. List one server or more.")
        in_memory = [is_in_memory(url) for url in urls]
        if any(in_memory) and not all(in_memory):
            raise ConfigError(
                "pools in memory and in Redis cannot be read together. List servers of one kind."
            )
        self._servers = [] if any(in_memory) else [open_client(url) for url in urls]
        self._clients = [server.client for server in self._servers]
        # where the pool is, and the module that reads from there
        self._sources: list[Any] = self._clients or list(urls)
        self._reader = pool_reader if self._clients else memory_reader
        self.name = name

    @property
    def where(self) -> str:
        """The addresses of the servers, without passwords."""
        return ", ".join(map(address, self._clients)) or "memory"

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Return the workers, ordered by worker id. Raises PoolNotFound.

        Of several servers, one that lost the pool counts as one without workers; one that is unavailable is an error.
        """
        count = len(self._sources)
        per_server = self._each(
            lambda source: self._reader.read_workers(source, self.name, alive_only=alive_only)
        )
        return sorted(
            (replace(info, worker=info.worker * count + i) for i, infos in per_server for info in infos),
            key=lambda info: info.worker,
        )

    def info(self) -> PoolInfo:
        """Return settings and counters; of several servers the first one's, with sums of their numbers.

        Raises PoolNotFound.
        """
        per_server = self._each(lambda source: self._reader.read_pool(source, self.name))
        infos: list[PoolInfo] = [info for _, info in per_server]
        summed = {name: sum(getattr(info, name) for info in infos) for name in _SUMMED}
        alarm = next((info.alarm for info in infos if info.alarm), "")
        return replace(infos[0], **summed, alarm=alarm)

    def _each(self, read: Callable[[Any], Any]) -> list[tuple[int, Any]]:
        """Return the index and the result of every server that has the pool. Raises PoolNotFound."""
        results = []
        for index, source in enumerate(self._sources):
            with contextlib.suppress(PoolNotFound):
                results.append((index, read(source)))
        if not results:
            raise PoolNotFound(self.name)
        return results

    # --- history ----------------------------------------------------------------------------------

    def events(
        self, *, newest: int | None = None, since: int | str | None = None, count: int = PAGE
    ) -> list[Event]:
        """Return the events of the pool, oldest first. Old ones are trimmed; a pool that does not exist has none.

        Args:
            newest: how many of the newest; None: all.
            since: only events after this: ms since 1970, or the id of an event (of one server only).
            count: how many are read in one command.

        Blocks:
            about 25 ms for each 1,000 events.

        Raises:
            StoreUnavailable; ConfigError: *since* is not valid.
        """
        place = None if since is None else check_stream_id(str(since))
        per_server = [
            read_events(client, self.name, newest=newest, since=place, count=count)
            for client in self._clients
        ]
        numbered = [[self._numbered(event, i) for event in events] for i, events in enumerate(per_server)]
        merged = list(heapq.merge(*numbered, key=_order))
        return merged if newest is None else merged[max(0, len(merged) - newest) :]

    def _numbered(self, event: Event, index: int) -> Event:
        """Return *event* of the server *index* with its worker id in the whole pool."""
        count = len(self._clients)
        if count == 1:
            return event
        return replace(event, worker=event.worker * count + index if event.worker >= 0 else -1, server=index)

    def follow(self, after: int | str = "$", *, block_ms: int = 500) -> Iterator[Event | None]:
        """Yield events as they happen, and None after each *block_ms* without one, so that the caller can stop.

        Args:
            after: "$": from now on; ms since 1970; or the id of an event (of one server only).
            block_ms: at most 900; several servers are read in turn.

        Raises:
            StoreUnavailable: call it again with the id of the last event.
        """
        place = after if after == "$" else check_stream_id(str(after))
        count = max(1, len(self._clients))
        limit_ms = max(1, min(block_ms, 900) // count)
        sources = [follow_events(client, self.name, place, block_ms=limit_ms) for client in self._clients]
        while True:
            quiet = True
            for index, source in enumerate(sources):
                for event in source:
                    if event is None:
                        break
                    quiet = False
                    yield self._numbered(event, index)
            if not sources:
                time.sleep(block_ms / 1000)
            if quiet:
                yield None

    def whois(self, an_id: int) -> Whois:
        """Return which process of this pool made *an_id*, as far as it can be known.

        Blocks:
            0.6 s if the pool's stream is full; Redis is busy for 15 ms of it.

        Raises:
            PoolNotFound, StoreUnavailable; InvalidId: a number that no id can be.
        """
        return self.whois_all([an_id])[0]

    def whois_all(self, ids: Sequence[int]) -> list[Whois]:
        """Return which process made each distinct id, in order; for an id that is given twice also possible causes.

        Blocks and raises as whois(), once for all ids.
        """
        if not self._clients:
            raise ConfigError("a pool in memory has no history; whois needs a Redis")
        return find_makers(self._clients, self.info(), ids)

    def forecast(self, info: PoolInfo | None = None) -> Forecast:
        """Estimate from the events when the pool will be full; "unknown" where they do not show it."""
        return forecast_of(self.events(), self.workers(alive_only=False), info or self.info())

    def pools(self) -> list[str]:
        """Return the names of all pools on the servers. Scans all their keys."""
        return sorted({name for client in self._clients for name in pool_reader.list_pools(client)})

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
                f"pool {self.name!r} has {alive} living workers; nothing was deleted. Stop them first, or use force."
            )
        now_ms, replies = time.time_ns() // 1_000_000, []
        for server in self._servers:
            replies.append(RedisStore(server, PoolConfig(name=self.name)).delete(now_ms))
            with translated(server.where):
                # an embedded Redis counts as new only until a pool was deleted from it
                server.client.delete(FRESH_KEY)
        deleted = [reply for reply in replies if isinstance(reply, Deleted)]
        if not deleted:
            raise PoolNotFound(self.name)
        return Deletion(
            alive=alive,
            wait_ms=max(0, *(reply.floor_ms - reply.redis_ms for reply in deleted)),
            guessed=any(reply.guessed for reply in deleted),
        )

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


def _order(event: Event) -> tuple[int, ...]:
    """Return the sort key of an event among several servers: its id, which begins with the time."""
    return (*map(int, event.id.split("-")), event.server)
