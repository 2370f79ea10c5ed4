"""Read pools and workers from one Redis with plain commands: no script is run and nothing is written.

Hosts and labels are untrusted text: any process can write them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.lease.clients import address, is_cluster
from snowredis.lease.model import parse_share, share_of
from snowredis.lease.redis_store import translated
from snowredis.lease.replies import Alarm
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.lease.stats import WorkerStats
from snowredis.monitor.snapshot import (
    POOL_COUNTERS,
    PoolInfo,
    WorkerInfo,
    setting_ms,
    settings_of,
    state_of,
)

_RECORD = re.compile(
    r"(?P<token>[\da-fA-F]*)\|(?P<incarnation>[\da-fA-F-]*)\|(?P<renewal_id>[\da-fA-F]*)\|(?P<until>\d{1,14})\|"
    r"(?P<lease_end>\d{1,14})\|(?P<lanes>[\d,]*)\|(?P<claimed>\d{1,14})\|(?P<renewed>\d{1,14})\|"
    r"(?P<stats>[\d,-]*)\|(?P<owner>.*)",
    re.DOTALL | re.ASCII,
)
# records per command
_PAGE = 500
_POOL_TEXTS = ("signature", "incarnation", "alarm")
_POOL_NUMBERS = ("version", "peak", "created", "floor", *POOL_COUNTERS)


def list_pools(client: Any) -> list[str]:
    """Return the names of all pools in this Redis. Scans all its keys: too slow to be repeated often."""
    with translated(address(client)):
        names = {
            match.group(1)
            for key in client.scan_iter(match="snowredis:{*}", count=1000)
            if (match := re.fullmatch(r"snowredis:\{(.+)\}", text_of(key)))
        }
    return sorted(name for name in names if not _was_deleted(client, name))


def _was_deleted(client: Any, name: str) -> bool:
    """Return true if the pool was deleted and only its floor remains; false for a key of another type."""
    try:
        with translated(address(client)):
            return client.hget(pool_keys(name)[0], "signature") is None
    except StoreUnavailable:
        return False


def read_pool(client: Any, name: str) -> PoolInfo:
    """Return settings and counters of a pool. Raises PoolNotFound, StoreUnavailable."""
    pool, leases, _ = pool_keys(name)
    fields = (*_POOL_TEXTS, *_POOL_NUMBERS)
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        values = [text_of(value or b"") for value in client.hmget(pool, fields)]
        if _index_is_complete(client, leases, client.hget(pool, "records")):
            used = int(client.zcount(leases, f"({now_ms}", "+inf"))
        else:
            used = len(read_workers(client, name)) if values[0] else 0
    texts = dict(zip(fields, values, strict=True))
    if not texts["signature"]:
        raise PoolNotFound(name)

    try:
        settings = settings_of(texts["signature"])
        layout = resolve_layout(settings["layout"])
        capacity = share_of(layout.workers, parse_share(settings.get("share", "")))
    except (KeyError, ConfigError, ValueError) as error:
        raise StoreUnavailable(
            address(client), f"the signature of pool {name!r} is not valid: {error}"
        ) from error
    numbers = {field: _number(client, name, field, texts[field]) for field in _POOL_NUMBERS}
    return PoolInfo(
        name=name,
        layout=layout,
        signature=texts["signature"],
        now_ms=now_ms,
        created_ms=numbers.pop("created"),
        floor_ms=numbers.pop("floor"),
        incarnation=texts["incarnation"],
        capacity=capacity,
        used=used,
        free=capacity - used,
        alarm=_alarm_text(texts["alarm"]),
        **numbers,
    )


def _number(client: Any, name: str, field: str, text: str) -> int:
    if not re.fullmatch(r"\d{0,15}", text, re.ASCII):
        raise StoreUnavailable(
            address(client), f"the field {field} of pool {name!r} is not a number: {text[:20]!r}"
        )
    return int(text or 0)


def _alarm_text(stored: str) -> str:
    """Return the text of a stored alarm; *stored* itself if no script wrote it."""
    try:
        return Alarm.parse(stored).text
    except ValueError:
        return stored


def read_workers(client: Any, name: str, *, alive_only: bool = True) -> list[WorkerInfo]:
    """Return the workers of a pool, ordered by worker id; with *alive_only* false also those whose lease ended.

    Raises PoolNotFound, StoreUnavailable.
    """
    pool, leases, _ = pool_keys(name)
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        signature, records = client.hmget(pool, ["signature", "records"])
        if not signature:
            raise PoolNotFound(name)
        if _index_is_complete(client, leases, records):
            low = f"({now_ms}" if alive_only else "-inf"
            fields = [f"w:{text_of(worker)}" for worker in client.zrangebyscore(leases, low, "+inf")]
            pages = [fields[start : start + _PAGE] for start in range(0, len(fields), _PAGE)]
            texts = [text for page in pages for text in client.hmget(pool, page)]
            rows = dict(zip(fields, texts, strict=True))
        else:
            # a scan may return a record twice
            rows = dict(client.hscan_iter(pool, match="w:*", count=_PAGE))
    ttl_ms = setting_ms(text_of(signature), "ttl_ms")
    infos = [
        parse_record(int(worker), text_of(text), now_ms, ttl_ms)
        for field, text in rows.items()
        if text is not None and _is_worker(worker := text_of(field).removeprefix("w:"))
    ]
    shown = [info for info in infos if info is not None and (info.alive or not alive_only)]
    return sorted(shown, key=lambda info: info.worker)


def read_worker(client: Any, name: str, worker: int) -> WorkerInfo | None:
    """Return one worker, alive or not; None if its worker id was never leased. Raises StoreUnavailable."""
    pool = pool_keys(name)[0]
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        signature, text = client.hmget(pool, ["signature", f"w:{worker}"])
    ttl_ms = setting_ms(text_of(signature or b""), "ttl_ms")
    return None if text is None else parse_record(worker, text_of(text), now_ms, ttl_ms)


def parse_record(worker: int, text: str, now_ms: int, ttl_ms: int = 0) -> WorkerInfo | None:
    """Parse a record that pack_record() of common.lua wrote; None if it is not valid."""
    match = _RECORD.fullmatch(text)
    if match is None:
        return None
    stats, claimed = WorkerStats.from_text(match["stats"]), bool(match["token"])
    renewed_ms, lease_end_ms = int(match["renewed"]), int(match["lease_end"])
    lease_left_ms, age_ms = max(0, lease_end_ms - now_ms), max(0, now_ms - renewed_ms)
    host, pid, label = parse_owner(match["owner"])
    return WorkerInfo(
        worker=worker,
        alive=claimed and lease_left_ms > 0,
        host=host,
        pid=pid,
        label=label,
        claimed_ms=int(match["claimed"]),
        renewed_ms=renewed_ms,
        lease_end_ms=lease_end_ms,
        lease_left_ms=lease_left_ms,
        reserved_until_ms=int(match["until"]),
        ids_made=stats.ids_made,
        ids_per_second=stats.ids_per_s,
        clock_offset_ms=stats.clock_offset_ms,
        namespace=stats.namespace,
        clock_backs=stats.clock_backs,
        token_hash=match["token"],
        heartbeat_age_ms=age_ms,
        state=state_of(age_ms, lease_left_ms, ttl_ms, claimed=claimed),
    )


def parse_owner(text: str) -> tuple[str, int, str]:
    """Return host, pid and label of an owner; untrusted text. What has the wrong type is left out."""
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict):
        return "", 0, ""
    pid = owner.get("pid")
    return _encodable(owner.get("host")), pid if type(pid) is int else 0, _encodable(owner.get("label"))


def _index_is_complete(client: Any, leases: str, records: bytes | str | None) -> bool:
    """Return false if the index was lost and no claim has rebuilt it yet."""
    return str(client.zcard(leases)) == text_of(records or b"0")


def _is_worker(text: str) -> bool:
    return re.fullmatch(r"0|[1-9]\d{0,6}", text, re.ASCII) is not None


def _encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def server_now_ms(client: Any, key: str) -> int:
    """Return the time of the server that stores *key*, in ms since 1970: lease ends are on that clock."""
    if is_cluster(client):
        client = client.get_redis_connection(client.get_node_from_key(key))
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
