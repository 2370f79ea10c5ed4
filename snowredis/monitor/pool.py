"""A pool seen from outside: who is alive, how full it is; and its making and removal by a person."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snowredis.embedded import FRESH_KEY, resolve
from snowredis.errors import ConfigError, PoolNotFound
from snowredis.lease.clients import address, connect_client, without_retries
from snowredis.lease.inspect import PoolInfo, WorkerInfo, list_pools, read_pool, read_workers
from snowredis.lease.model import PoolConfig, check_pool_name
from snowredis.lease.redis_store import RedisStore, translated
from snowredis.lease.replies import Created, Deleted
from snowredis.lease.sharded_store import ShardedStore
from snowredis.monitor.forecast import Forecast, forecast_of
from snowredis.monitor.history.events import (
    PAGE,
    Event,
    check_stream_id,
    follow_events,
    read_events,
)
from snowredis.monitor.history.whois import Whois, find_makers
from snowredis.monitor.memory import MemoryView

# of several servers: the sum of what each says
_SUMMED = ("capacity", "used", "free", "peak", "claims", "releases", "expired", "adopted", "lost", "alarms")


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        wait_ms: for how long new workers of a pool of this name have to wait.
        guessed: the pool's settings could not be read, so that the wait rests on the defaults and on what its
            records show.
    """

    alive: int
    wait_ms: int
    guessed: bool


class WorkerPool:
    """A pool in one Redis, or in several independent ones.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a list of those; or a pool of snowredis.testing, which
            has workers and info, but no events.
        name: the pool's name.

    Every method blocks for a few round trips to each server and raises StoreUnavailable and its kinds.
    """

    def __init__(self, url: Any, name: str = "default") -> None:
        check_pool_name(name)
        urls = url if isinstance(url, list | tuple) else [url]
        if not urls:
            raise ConfigError("there is no server in the list of URLs. Name one at least.")
        self._memory = [MemoryView(url, name) for url in urls if hasattr(url, "memory_store")]
        if self._memory and len(self._memory) < len(urls):
            raise ConfigError("pools in memory and in Redis cannot be looked at together. Name one kind.")
        self._clients = (
            []
            if self._memory
            else [
                connect_client(resolve(url)) if isinstance(url, str) else without_retries(url) for url in urls
            ]
        )
        self.name = name

    @property
    def where(self) -> str:
        """The address, without password."""
        return ", ".join(map(address, self._clients)) or "memory"

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Who holds which worker id, ordered by worker id. Raises PoolNotFound.

        Of several servers one that has no such pool, as after a loss, has no workers; one that does not
        answer is an error.
        """
        count = len(self._clients or self._memory)
        found = self._each(
            lambda client: read_workers(client, self.name, alive_only=alive_only),
            lambda memory: memory.workers(alive_only=alive_only),
        )
        return sorted(
            (replace(info, worker=info.worker * count + i) for i, infos in found for info in infos),
            key=lambda info: info.worker,
        )

    def info(self) -> PoolInfo:
        """The pool's own state; of several servers that of the first that has it, with their numbers added up.

        Raises PoolNotFound.
        """
        infos: list[PoolInfo] = [
            info for _, info in self._each(lambda client: read_pool(client, self.name), MemoryView.info)
        ]
        summed = {name: sum(getattr(info, name) for info in infos) for name in _SUMMED}
        alarm = next((info.alarm for info in infos if info.alarm), "")
        return replace(infos[0], **summed, alarm=alarm) if len(infos) > 1 else infos[0]

    # --- the past ----------------------------------------------------------------------------------

    def events(
        self, *, newest: int | None = None, since: int | str | None = None, count: int = PAGE
    ) -> list[Event]:
        """What happened in the pool, the oldest first; as far as the stream, which is trimmed, still has it.

        Args:
            newest: only so many of the newest.
            since: only what came after this: ms since 1970, or an event's id, of one server only.
            count: how many are asked for in one command.

        Blocks:
            about 25 ms for each 1,000 events.

        Raises:
            StoreUnavailable; ConfigError: *since* is no place among events. A pool that does not exist has none.
        """
        place = None if since is None else check_stream_id(str(since))
        pages = [
            self._globally(read_events(client, self.name, newest=newest, since=place, count=count), index)
            for index, client in enumerate(self._clients)
        ]
        merged = list(heapq.merge(*pages, key=_order))
        return merged if newest is None else merged[max(0, len(merged) - newest) :]

    def _globally(self, events: list[Event], index: int) -> list[Event]:
        count = len(self._clients)
        if count == 1:
            return events
        return [
            replace(event, worker=event.worker * count + index if event.worker >= 0 else -1, server=index)
            for event in events
        ]

    def follow(self, after: int | str = "$", *, block_ms: int = 500) -> Iterator[Event | None]:
        """Events as they come; None about every *block_ms* in which none came, so that the caller can look up.

        Args:
            after: "$": from now on; ms since 1970; or an event's id, of one server only.
            block_ms: at most 900; of several servers each is asked in turn.

        Raises:
            StoreUnavailable: follow again from the last event's id.
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
                    yield self._globally([event], index)[0]
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
        """Return who made each distinct id, in order; of an id that is given twice also how that can be.

        Blocks and raises as whois(), once for all ids.
        """
        if not self._clients:
            raise ConfigError("a pool in memory keeps no history; whois needs a Redis")
        return find_makers(self._clients, self.info(), ids)

    def forecast(self, info: PoolInfo | None = None) -> Forecast:
        """When the pool is used up at the present growth, of its events; says "unknown" where they do not show it."""
        return forecast_of(self.events(), self.workers(alive_only=False), info or self.info())

    def _each(self, read: Any, of_memory: Any) -> list[tuple[int, Any]]:
        """What every server that has the pool says, with its place in the list."""
        found = []
        for index, client in enumerate(self._clients or self._memory):
            try:
                found.append((index, read(client) if self._clients else of_memory(client)))
            except PoolNotFound:
                continue
        if not found:
            raise PoolNotFound(self.name)
        return found

    def pools(self) -> list[str]:
        """The names of all pools there."""
        return sorted({name for client in self._clients for name in list_pools(client)})

    def create(self, config: PoolConfig, caller_ms: int | None = None) -> bool:
        """Say that the pool is really new: nobody has to wait for its floor then.

        Only a person can know that. If ids were made in a pool of this name and layout less than
        ttl + max_clock_lead + redis_skew ago, they can be repeated.

        Returns:
            False if there is one already, with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: there is one with other settings.
            StoreUnavailable: of several independent servers, one does not answer; nothing was made then.
        """
        count = len(self._clients)
        shares = (replace(config, share=(index, count)) for index in range(count))
        stores = [RedisStore(client, share) for client, share in zip(self._clients, shares, strict=True)]
        store = stores[0] if count == 1 else ShardedStore(stores, config)
        reply = store.create(time.time_ns() // 1_000_000 if caller_ms is None else caller_ms)
        return isinstance(reply, Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Remove the pool, whatever its settings, also one that is broken.

        What stays for a while is the time up to which its reservations may reach: whoever makes a pool of this
        name, with whichever settings, starts above it, so no id is repeated. Living generators bring the pool back
        with their next heartbeat and keep their worker ids, unless one with other settings was made meanwhile.

        Raises:
            PoolNotFound; ConfigError: workers are alive, and *force* is not set.
        """
        try:
            alive = len(self.workers())
        except PoolNotFound:
            # its signature is gone; perhaps not all of it is
            alive = 0
        if alive and not force:
            raise ConfigError(
                f"pool {self.name!r} has {alive} living workers; nothing was deleted. Stop them first, or force it."
            )
        now_ms, replies = time.time_ns() // 1_000_000, []
        for client in self._clients:
            replies.append(RedisStore(client, PoolConfig(name=self.name)).delete(now_ms))
            with translated(address(client)):
                # an embedded Redis says that it is new: not after a pool was deleted from it
                client.delete(FRESH_KEY)
        deleted = [reply for reply in replies if isinstance(reply, Deleted)]
        if not deleted:
            raise PoolNotFound(self.name)
        return Deletion(
            alive=alive,
            wait_ms=max(0, *(reply.floor_ms - reply.redis_ms for reply in deleted)),
            guessed=any(reply.guessed for reply in deleted),
        )

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _order(event: Event) -> tuple[int, ...]:
    """Of events of several servers: by their ids, which begin with the time."""
    return (*map(int, event.id.split("-")), event.server)
