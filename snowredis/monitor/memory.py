"""A pool of snowredis.testing as WorkerPool shows it: who is alive, how full it is; it keeps no history."""

from __future__ import annotations

from typing import Any

from snowredis.errors import PoolNotFound
from snowredis.lease.inspect import PoolInfo, WorkerInfo, parse_owner, state_of


class MemoryView:
    """Of the pool called *name* in *pool*."""

    def __init__(self, pool: Any, name: str) -> None:
        self._pool, self._name = pool, name

    def _store(self) -> Any:
        store = self._pool._stores.get(self._name)
        if store is None or not store.stored_signature():
            raise PoolNotFound(self._name)
        return store

    def workers(self, *, alive_only: bool) -> list[WorkerInfo]:
        store = self._store()
        now_ms, ttl_ms = store._server_time_ms(), store.config.ttl_ms
        found = []
        for worker, record in sorted(dict(store._records).items()):
            host, pid, label = parse_owner(record.owner)
            stats = record.stats
            left_ms = max(0, record.lease_end_ms - now_ms)
            # a record keeps no time of its last renewal: each sets the lease's end one ttl ahead
            renewed_ms = record.lease_end_ms - (ttl_ms if record.token else 0)
            age_ms = max(0, now_ms - renewed_ms)
            info = WorkerInfo(
                worker=worker,
                alive=bool(record.token) and left_ms > 0,
                host=host,
                pid=pid,
                label=label,
                claimed_ms=renewed_ms,
                renewed_ms=renewed_ms,
                lease_end_ms=record.lease_end_ms,
                lease_left_ms=left_ms,
                reserved_until_ms=record.until_ms,
                ids_made=stats.ids_made,
                ids_per_second=stats.ids_per_s,
                clock_offset_ms=stats.clock_offset_ms,
                namespace=stats.namespace,
                clock_backs=stats.clock_backs,
                token_hash="claimed" if record.token else "",
                heartbeat_age_ms=age_ms,
                state=state_of(age_ms, left_ms, ttl_ms, claimed=bool(record.token)),
            )
            found += [info] if info.alive or not alive_only else []
        return found

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
