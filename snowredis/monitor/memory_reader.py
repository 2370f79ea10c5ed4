"""Read pools and workers of snowredis.testing, as pool_reader.py does from Redis. They keep no history."""

from __future__ import annotations

from typing import Any

from snowredis.errors import PoolNotFound
from snowredis.monitor.pool_reader import worker_info
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo


class MemoryReader:
    """Reader of the pool *name* in *pool*, a pool of snowredis.testing."""

    def __init__(self, pool: Any, name: str) -> None:
        self._pool, self._name = pool, name

    def _store(self) -> Any:
        store = self._pool._stores.get(self._name)
        if store is None or not store.stored("signature"):
            raise PoolNotFound(self._name)
        return store

    def workers(self, *, alive_only: bool) -> list[WorkerInfo]:
        store = self._store()
        now_ms, ttl_ms = store._server_time_ms(), store.config.ttl_ms
        infos = []
        for worker, record in sorted(dict(store._records).items()):
            # a record does not store the time of its renewal, which set the end of the lease one ttl ahead
            renewed_ms = record.lease_end_ms - (ttl_ms if record.token else 0)
            info = worker_info(
                worker,
                token_hash="claimed" if record.token else "",
                owner=record.owner,
                stats=record.stats,
                claimed_ms=renewed_ms,
                renewed_ms=renewed_ms,
                lease_end_ms=record.lease_end_ms,
                reserved_until_ms=record.until_ms,
                now_ms=now_ms,
                ttl_ms=ttl_ms,
            )
            infos += [info] if info.alive or not alive_only else []
        return infos

    def info(self) -> PoolInfo:
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
