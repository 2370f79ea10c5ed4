"""A pool seen from outside: who is alive, how full it is; and its making and removal by a person."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from snowredis.core.layout import check_id
from snowredis.embedded import FRESH_KEY
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.lease.clients import address
from snowredis.lease.inspect import PoolInfo, WorkerInfo, list_pools, read_pool, read_worker, read_workers
from snowredis.lease.model import PoolConfig, parse_share
from snowredis.lease.open import is_in_memory, open_client
from snowredis.lease.redis_store import RedisStore, translated
from snowredis.lease.replies import Created, Deleted
from snowredis.lease.sharded_store import ShardedStore
from snowredis.monitor.duplicate_causes import Cause, causes_of_twins
from snowredis.monitor.events import (
    PAGE,
    Event,
    check_stream_id,
    follow_events,
    read_events,
    read_stream_state,
)
from snowredis.monitor.forecast import Forecast, forecast_of
from snowredis.monitor.history import History, Past
from snowredis.monitor.memory import MemoryView
from snowredis.monitor.whois import Whois
from snowredis.settings import check

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
        check("pool", name)
        urls = url if isinstance(url, list | tuple) else [url]
        if not urls:
            raise ConfigError("there is no server in the list of URLs. Name one at least.")
        self._memory = [MemoryView(url, name) for url in urls if is_in_memory(url)]
        if self._memory and len(self._memory) < len(urls):
            raise ConfigError("pools in memory and in Redis cannot be looked at together. Name one kind.")
        self._clients = [] if self._memory else [open_client(url).client for url in urls]
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

    def history(self, *, server: int = 0, only: int | None = None) -> History:
        """All that is known of the past, read once, to be asked about many ids.

        Args:
            server: of several independent ones, which.
            only: ids of this worker id only, as the server numbers it: other records are not read then.

        Blocks:
            as events(). Raises StoreUnavailable, PoolNotFound.
        """
        client = self._clients[server]
        # in this order: an event that is not in the records yet is no contradiction, the other way round it is
        state = read_stream_state(client, self.name)
        info = read_pool(client, self.name)
        if only is None:
            records = {one.worker: one for one in read_workers(client, self.name, alive_only=False)}
        else:
            record = read_worker(client, self.name, only)
            records = {} if record is None else {only: record}
        events = read_events(client, self.name)
        past = Past(info.ttl_ms, info.lead_ms, info.now_ms, info.created_ms, info.claims, state, records)
        return History(events, past)

    def whois(self, an_id: int) -> Whois:
        """Which process of this pool made *an_id*, as far as that can be known.

        Blocks:
            as events(): 0.6 s if the pool's stream is full, of which Redis is busy for 15 ms.

        Raises:
            PoolNotFound, StoreUnavailable; InvalidId: it is no number that an id can be.
        """
        return self.whois_all([an_id])[0]

    def whois_all(self, ids: list[int]) -> list[Whois]:
        """The same of many ids; the past is read once."""
        info = self._info_for_history()
        histories: dict[int, History] = {}
        found = []
        for an_id in ids:
            server, worker = self._place_of(an_id, info)
            if server not in histories:
                histories[server] = self.history(server=server, only=worker if len(ids) == 1 else None)
            found.append(self._whois_in(histories[server], an_id, info, server))
        return found

    def _info_for_history(self) -> PoolInfo:
        if not self._clients:
            raise ConfigError("a pool in memory keeps no history; whois needs a Redis")
        return self.info()

    def _place_of(self, an_id: int, info: PoolInfo) -> tuple[int, int]:
        """Which of the servers has the id's worker id, and its number there."""
        worker = check_id(an_id) >> info.layout.worker_shift & (info.layout.workers - 1)
        return worker % len(self._clients), worker // share_in(info)[1]

    def _whois_in(self, history: History, an_id: int, info: PoolInfo, server: int) -> Whois:
        count = len(self._clients)
        share = share_in(info) if count == 1 else (server, count)
        datacenter = int(info.settings.get("datacenter", "0") or 0)
        return history.whois(an_id, info.layout, datacenter=datacenter, share=share)

    def twins(self, an_id: int) -> list[Cause]:
        """How *an_id* can stand in two places: what the history shows first. Blocks and raises as whois()."""
        info = self._info_for_history()
        server, worker = self._place_of(an_id, info)
        history = self.history(server=server, only=worker)
        found = self._whois_in(history, an_id, info, server)
        alike = [name for name in self.pools() if name != self.name and self._is_alike(name, info)]
        return causes_of_twins(found, history, info, alike)

    def _is_alike(self, name: str, info: PoolInfo) -> bool:
        """Whether another pool of these servers makes the same ids."""
        try:
            other = read_pool(self._clients[0], name)
        except (PoolNotFound, StoreUnavailable):
            # keys of another program may look like a pool
            return False
        return same_ids(info, other)

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


def share_in(info: PoolInfo) -> tuple[int, int]:
    """Which share of a layout's worker ids the pool's server has: (index, count)."""
    return parse_share(info.settings.get("share", ""))


def same_ids(one: PoolInfo, other: PoolInfo) -> bool:
    """Whether two pools make the same ids, so that they must not fill one table."""
    datacenters = (one.settings.get("datacenter"), other.settings.get("datacenter"))
    return one.layout == other.layout and datacenters[0] == datacenters[1]
