"""Read pools and workers of snowredis.testing, as pool_reader.py does from Redis. They keep no history."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from snowredis.errors import PoolNotFound
from snowredis.lease.memory_store import MemoryStore, Record
from snowredis.monitor.pool_reader import parse_record
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo


class MemoryReader:
    """Reader of the pool *name* in *pool*, a pool of snowredis.testing."""

    def __init__(self, pool: Any, name: str) -> None:
        self._pool, self._name = pool, name

    def _store(self) -> MemoryStore:
        store: MemoryStore | None = self._pool._stores.get(self._name)
        if store is None or not store.stored("signature"):
            raise PoolNotFound(self._name)
        return store

    def workers(self, *, alive_only: bool) -> list[WorkerInfo]:
        """Return the workers, ordered by worker id; with *alive_only* false also those whose lease ended."""
        store = self._store()
        now_ms, ttl_ms = store._server_time_ms(), store.config.ttl_ms
        infos = [
            parse_record(worker, _record_text(record, ttl_ms), now_ms, ttl_ms)
            for worker, record in sorted(dict(store._records).items())
        ]
        return [info for info in infos if info is not None and (info.alive or not alive_only)]

    def info(self) -> PoolInfo:
        """Return settings and counters of the pool."""
        store = self._store()
        used, events = len(self.workers(alive_only=True)), [kind for kind, _ in store.events]
        config = store.config
        return PoolInfo(
            name=self._name,
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
            claims=events.count("claimed"),
            releases=events.count("released"),
            expired=events.count("expired"),
            adopted=events.count("adopted"),
            lost=events.count("lost"),
            alarms=0,
            alarm="",
        )


def _record_text(record: Record, ttl_ms: int) -> str:
    """Return *record* as pack_record() of record.lua stores one in Redis, as far as parse_record() reads it."""
    token_hash = sha1(record.token.encode(), usedforsecurity=False).hexdigest() if record.token else ""
    # a record does not contain the time of its renewal, which set the end of the lease one ttl ahead
    renewed_ms = record.lease_end_ms - (ttl_ms if record.token else 0)
    fields = (token_hash, "", "", record.until_ms, record.lease_end_ms, "", renewed_ms, renewed_ms)
    return "|".join(map(str, (*fields, record.stats.to_text(), record.owner)))
