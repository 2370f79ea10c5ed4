"""Read pools and workers of snowredis.testing: the functions of pool_reader.py, for pools in memory."""

from __future__ import annotations

from collections import Counter
from hashlib import sha1
from typing import Any

from snowredis.errors import PoolNotFound
from snowredis.lease.memory_store import MemoryStore, Record
from snowredis.monitor.pool_reader import parse_record
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo


def read_workers(pool: Any, name: str, *, alive_only: bool = True) -> list[WorkerInfo]:
    """Return the workers, ordered by worker id; with *alive_only* false also those whose lease ended.

    Raises PoolNotFound.
    """
    store = _store_of(pool, name)
    now_ms, ttl_ms = store._server_time_ms(), store.config.ttl_ms
    infos = [
        parse_record(worker, _record_text(record, ttl_ms), now_ms, ttl_ms)
        for worker, record in sorted(dict(store._records).items())
    ]
    return [info for info in infos if info is not None and (info.alive or not alive_only)]


def read_pool(pool: Any, name: str) -> PoolInfo:
    """Return settings and counters of a pool. Raises PoolNotFound."""
    store = _store_of(pool, name)
    config, used = store.config, len(read_workers(pool, name))
    events = Counter(kind for kind, _ in store.events)
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
        claims=events["claimed"],
        releases=events["released"],
        expired=events["expired"],
        adopted=events["adopted"],
        lost=events["lost"],
        alarms=0,
        alarm="",
    )


def _store_of(pool: Any, name: str) -> MemoryStore:
    store: MemoryStore | None = pool._stores.get(name)
    if store is None or not store.stored("signature"):
        raise PoolNotFound(name)
    return store


def _record_text(record: Record, ttl_ms: int) -> str:
    """Return *record* as pack_record() of record.lua stores one in Redis, as far as parse_record() reads it."""
    token_hash = sha1(record.token.encode(), usedforsecurity=False).hexdigest() if record.token else ""
    # a record does not contain the time of its renewal, which set the end of the lease one ttl ahead
    renewed_ms = record.lease_end_ms - (ttl_ms if record.token else 0)
    fields = (token_hash, "", "", record.until_ms, record.lease_end_ms, "", renewed_ms, renewed_ms)
    return "|".join(map(str, (*fields, record.stats.to_text(), record.owner)))
