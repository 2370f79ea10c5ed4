"""Change records of worker ids in Redis, as no script would."""

from typing import Any

from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord


def record_of(client: Any, pool: str, worker: int) -> LeaseRecord:
    """Return the record of *worker*."""
    record = LeaseRecord.parse(str(client.hget(pool_keys(pool)[0], f"w:{worker}")))
    assert record is not None
    return record


def change_record(client: Any, pool: str, worker: int, *, like: int | None = None, **changes: Any) -> None:
    """Store the record of *worker*, or one like that of *like*, with *changes*; and its lease end in the index."""
    record = record_of(client, pool, worker if like is None else like)._replace(**changes)
    key, leases, _ = pool_keys(pool)
    client.hset(key, f"w:{worker}", record.pack())
    client.zadd(leases, {str(worker): record.lease_end_ms})
