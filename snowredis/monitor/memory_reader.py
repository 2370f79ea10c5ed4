"""Read pools and workers of snowredis.testing: the functions of pool_reader.py, for pools in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

from snowredis.errors import PoolNotFound
from snowredis.monitor.events import Event, parse_event
from snowredis.monitor.snapshot import (
    POOL_COUNTERS,
    LayoutPeriod,
    PoolInfo,
    ServerState,
    WorkerInfo,
    parse_record,
)
from snowredis.snowflake.codes import FloorReason
from snowredis.snowflake.memory_store import MemoryStore, Record


def read_workers(pool: Any, name: str, *, alive_only: bool = True) -> list[WorkerInfo]:
    """Return the workers, ordered by worker id; with *alive_only* false also those whose lease ended.

    Raises PoolNotFound.
    """
    return [info for info in _read_records(_store_of(pool, name)) if info.alive or not alive_only]


def _read_records(store: MemoryStore) -> list[WorkerInfo]:
    now_ms, ttl_ms = store._server_time_ms(), store.config.ttl_ms
    settling = store._incarnation if store._floor_ms > now_ms else ""
    infos = (
        parse_record(worker, _record_text(record), now_ms, ttl_ms, settling=settling)
        for worker, record in sorted(dict(store._records).items())
    )
    return [info for info in infos if info is not None]


def read_server(pool: Any, name: str, *, idle: bool = False) -> ServerState:
    """Return the state of a pool; with *idle* also all worker ids without a lease. Raises PoolNotFound."""
    infos = read_workers(pool, name, alive_only=False)
    alive = [info for info in infos if info.alive]
    others = [info for info in infos if idle and not info.alive]
    return ServerState(read_pool(pool, name), alive, _ended(_store_of(pool, name)), others)


def read_ended(pool: Any, name: str) -> list[WorkerInfo]:
    """Return workers whose lease ended without a release that no call noted yet; without a pool there are none."""
    store: MemoryStore | None = pool._stores.get(name)
    ended = _ended(store) if store else []
    return sorted((info for info in ended if info.state == "expired"), key=lambda info: info.lease_end_ms)


def read_worker(pool: Any, name: str, worker: int) -> WorkerInfo | None:
    """Return one worker, alive or not; None if its worker id was never leased. Raises PoolNotFound."""
    return next((info for info in _read_records(_store_of(pool, name)) if info.worker == worker), None)


def _ended(store: MemoryStore) -> list[WorkerInfo]:
    swept_ms = store._swept_ms
    infos = _read_records(store)
    return [info for info in infos if info.state in ("expired", "unknown") and info.lease_end_ms > swept_ms]


def read_events(
    pool: Any, name: str, *, newest: int | None = None, since: str | None = None, **_: object
) -> list[Event]:
    """Return the events, the oldest first; the arguments are those of history.events.read_events()."""
    store: MemoryStore | None = pool._stores.get(name)
    entries = list(store._entries) if store else []
    after = (0, -1) if since is None else _place(since)
    events = [parse_event(event_id, fields) for event_id, fields in entries if _place(event_id) > after]
    valid = [event for event in events if event is not None]
    return valid if newest is None else valid[max(0, len(valid) - newest) :]


def follow_events(pool: Any, name: str, after: str, block_ms: int) -> Iterator[Event | None]:
    """Yield events as they happen, and None after each *block_ms* without one."""
    if after == "$":
        events = read_events(pool, name, newest=1)
        after = events[-1].id if events else "0-0"
    while True:
        events = read_events(pool, name, since=after)
        yield from events
        if events:
            after = events[-1].id
        else:
            time.sleep(block_ms / 1000)
            yield None


def _place(event_id: str) -> tuple[int, int]:
    """Return a key by which ids of events are compared; a time alone comes before the events of its ms."""
    time_ms, _, number = event_id.partition("-")
    return int(time_ms), int(number or -1)


def read_pool(pool: Any, name: str) -> PoolInfo:
    """Return settings and counters of a pool. Raises PoolNotFound."""
    store = _store_of(pool, name)
    config, used = store.config, len(read_workers(pool, name))
    counts = dict(store._counts)
    counts["expired"] = counts.get("expired", 0) + len(_ended(store))
    return PoolInfo(
        name=name,
        layout=config.layout,
        signature=config.signature,
        now_ms=store._server_time_ms(),
        created_ms=0,
        floor_ms=store._floor_ms,
        incarnation=store._incarnation,
        version=store._version,
        capacity=config.capacity,
        used=used,
        free=config.capacity - used,
        peak=used,
        alarm="",
        floor_reason=str(FloorReason.NO_POOL),
        layouts=(LayoutPeriod(config.layout, 0, None),),
        **dict[str, Any]({name: counts.get(name, 0) for name in POOL_COUNTERS}),
    )


def _store_of(pool: Any, name: str) -> MemoryStore:
    store: MemoryStore | None = pool._stores.get(name)
    if store is None or not store.stored("signature"):
        raise PoolNotFound(name)
    return store


def _record_text(record: Record) -> str:
    """Return *record* as pack_record() of pool.lua stores one in Redis, as far as parse_record() reads it."""
    token_hash = sha1(record.token.encode(), usedforsecurity=False).hexdigest() if record.token else ""
    incarnation = record.incarnation if re.fullmatch(r"[\da-f-]*", record.incarnation) else ""
    lanes = ",".join(map(str, record.lanes_ms))
    ends = (record.until_ms, record.lease_end_ms, lanes, f"{record.outage_ms},{record.cut_ms}")
    times = (*ends, record.claimed_ms, record.renewed_ms)
    fields = (token_hash, incarnation, "", *times)
    return "|".join(map(str, (*fields, record.stats.to_text(), record.owner)))
