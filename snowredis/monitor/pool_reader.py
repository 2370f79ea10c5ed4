"""Read pools and workers from one Redis with plain commands: no script is run and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.monitor.snapshot import (
    POOL_COUNTERS,
    LayoutPeriod,
    PoolInfo,
    ServerState,
    WorkerInfo,
    parse_owner,
    parse_record,
    setting_ms,
)
from snowredis.servers.clients import address, is_cluster
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import parse_share, pool_keys, settings_of, share_of
from snowredis.snowflake.replies import Alarm

_NUMBER = re.compile(r"\d{1,15}", re.ASCII)
# records in one command, which takes Redis less than 1 ms
_PAGE = 1_000
_POOL_TEXTS = ("signature", "incarnation", "alarm", "floor_reason", "layouts", "next_signature", "mismatch")
_POOL_NUMBERS = (
    "changes_at",
    "changes_floor",
    "version",
    "peak",
    "created",
    "floor",
    "records",
    "swept",
    *POOL_COUNTERS,
)


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


@dataclass(frozen=True, slots=True)
class _Fields:
    """Fields of a pool, read at *now_ms* on the clock of its server."""

    now_ms: int
    texts: Mapping[str, str]

    def number(self, field: str) -> int:
        """Return a number; 0 for a text that no script wrote."""
        return int(self.texts[field]) if _NUMBER.fullmatch(self.texts[field]) else 0

    @property
    def swept_ms(self) -> int:
        """Scripts wrote all leases that ended up to this time; the Redis clock may have gone back since."""
        return min(self.number("swept"), self.now_ms)

    def parse(self, worker: int, text: str) -> WorkerInfo | None:
        """Parse the record of *worker*; None if it is not valid."""
        # until the floor has passed, leases whose renewals Redis forgot are adopted
        settling = self.texts["incarnation"] if self.number("floor") > self.now_ms else ""
        ttl_ms = setting_ms(self.texts["signature"], "ttl_ms")
        return parse_record(worker, text, self.now_ms, ttl_ms, settling=settling)


def _read_fields(client: Any, name: str) -> _Fields:
    pool, fields = pool_keys(name)[0], (*_POOL_TEXTS, *_POOL_NUMBERS)
    now_ms = server_now_ms(client, pool)
    values = (text_of(value or b"") for value in client.hmget(pool, fields))
    texts = dict(zip(fields, values, strict=True))
    if not texts["signature"]:
        raise PoolNotFound(name)
    return _Fields(now_ms, texts)


def read_pool(client: Any, name: str) -> PoolInfo:
    """Return settings and counters of a pool. Raises PoolNotFound, StoreUnavailable."""
    leases = pool_keys(name)[1]
    with translated(address(client)):
        fields = _read_fields(client, name)
        if _index_is_complete(client, leases, fields):
            used = int(client.zcount(leases, f"({fields.now_ms}", "+inf"))
            ended = len(_ended(_read_records(client, name, fields, low=fields.swept_ms, high=fields.now_ms)))
        else:
            infos = _scan_records(client, name, fields)
            used = sum(info.alive for info in infos)
            ended = len(_ended(infos, fields.swept_ms))
    return _pool_info(client, name, fields, used, ended)


def read_server(client: Any, name: str, *, idle: bool = False) -> ServerState:
    """Return the state of a pool; with *idle* also all worker ids without a lease.

    Raises PoolNotFound, StoreUnavailable.
    """
    with translated(address(client)):
        fields = _read_fields(client, name)
        if _index_is_complete(client, pool_keys(name)[1], fields):
            infos = _read_records(client, name, fields, low=None if idle else fields.swept_ms)
        else:
            infos = _scan_records(client, name, fields)
    alive, ended = [info for info in infos if info.alive], _ended(infos, fields.swept_ms)
    pool_info = _pool_info(client, name, fields, len(alive), len(ended))
    return ServerState(pool_info, alive, ended, [info for info in infos if idle and not info.alive])


def read_ended(client: Any, name: str) -> list[WorkerInfo]:
    """Return workers whose lease ended without a release that no script wrote yet, by the end of their lease.

    Those whose renewals Redis may have forgotten are left out; without a pool there are none. Raises StoreUnavailable.
    """
    with translated(address(client)):
        try:
            fields = _read_fields(client, name)
        except PoolNotFound:
            return []
        if _index_is_complete(client, pool_keys(name)[1], fields):
            infos = _read_records(client, name, fields, low=fields.swept_ms, high=fields.now_ms)
        else:
            infos = _scan_records(client, name, fields)
    ended = (info for info in _ended(infos, fields.swept_ms) if info.state == "expired")
    return sorted(ended, key=lambda info: info.lease_end_ms)


def _ended(infos: Iterable[WorkerInfo], swept_ms: int = 0) -> list[WorkerInfo]:
    return [info for info in infos if info.state in ("expired", "unknown") and info.lease_end_ms > swept_ms]


def _pool_info(client: Any, name: str, fields: _Fields, used: int, ended: int) -> PoolInfo:
    texts = fields.texts
    try:
        settings = settings_of(texts["signature"])
        layout = resolve_layout(settings["layout"])
        capacity = share_of(layout.workers, parse_share(settings.get("share", "")))
    except (KeyError, ConfigError, ValueError) as error:
        raise StoreUnavailable(
            address(client), f"the signature of pool {name!r} is not valid: {error}"
        ) from error
    numbers = {field: _number(client, name, field, texts[field]) for field in _POOL_NUMBERS}
    alarm = _alarm(texts["alarm"])
    try:
        periods = layout_periods(layout, texts["layouts"], texts["next_signature"], numbers["changes_floor"])
    except (ConfigError, KeyError, ValueError) as error:
        raise StoreUnavailable(
            address(client), f"the layouts of pool {name!r} are not valid: {error}"
        ) from error
    numbers["expired"] += ended
    mismatch_at, _, owner = texts["mismatch"].partition("|")
    by = parse_owner(owner)
    return PoolInfo(
        name=name,
        layout=layout,
        signature=texts["signature"],
        now_ms=fields.now_ms,
        created_ms=numbers["created"],
        floor_ms=numbers["floor"],
        floor_reason=texts["floor_reason"],
        incarnation=texts["incarnation"],
        layouts=periods,
        changes_ms=numbers["changes_at"],
        version=numbers["version"],
        capacity=capacity,
        used=used,
        free=capacity - used,
        peak=numbers["peak"],
        mismatch_ms=int(mismatch_at) if _NUMBER.fullmatch(mismatch_at) else 0,
        mismatch_by=f"{by.host}:{by.pid}{f' ({by.label})' if by.label else ''}" if by.host else "",
        alarm=alarm.text if alarm else texts["alarm"],
        alarm_from_ms=alarm.from_ms if alarm else 0,
        alarm_until_ms=alarm.until_ms if alarm else 0,
        **{counter: numbers[counter] for counter in POOL_COUNTERS},
    )


def layout_periods(layout: Layout, past: str, next_signature: str, next_ms: int) -> tuple[LayoutPeriod, ...]:
    """Return all layouts of a pool: those of its field *layouts*, the present one, and the planned one.

    Raises ConfigError, KeyError or ValueError for what no script wrote.
    """
    periods, from_ms = [], 0
    for entry in past.split():
        until, _, spec = entry.partition("|")
        periods.append(LayoutPeriod(resolve_layout(spec), from_ms, int(until)))
        from_ms = int(until)
    periods.append(LayoutPeriod(layout, from_ms, next_ms or None))
    if next_signature:
        periods.append(LayoutPeriod(resolve_layout(settings_of(next_signature)["layout"]), next_ms, None))
    return tuple(periods)


def _number(client: Any, name: str, field: str, text: str) -> int:
    if text and not _NUMBER.fullmatch(text):
        raise StoreUnavailable(
            address(client), f"the field {field} of pool {name!r} is not a number: {text[:20]!r}"
        )
    return int(text or 0)


def _alarm(stored: str) -> Alarm | None:
    """Return a stored alarm; None if no script wrote it."""
    try:
        return Alarm.parse(stored)
    except ValueError:
        return None


def read_workers(client: Any, name: str, *, alive_only: bool = True) -> list[WorkerInfo]:
    """Return the workers of a pool, ordered by worker id; with *alive_only* false also those whose lease ended.

    Raises PoolNotFound, StoreUnavailable.
    """
    with translated(address(client)):
        fields = _read_fields(client, name)
        if _index_is_complete(client, pool_keys(name)[1], fields):
            infos = _read_records(client, name, fields, low=fields.now_ms if alive_only else None)
        else:
            infos = _scan_records(client, name, fields)
    return [info for info in infos if info.alive or not alive_only]


def _read_records(
    client: Any, name: str, fields: _Fields, *, low: int | None, high: int | None = None
) -> list[WorkerInfo]:
    """Return the workers whose leases end after *low*, up to *high*, by worker id."""
    pool, leases, _ = pool_keys(name)
    limits = ("-inf" if low is None else f"({low}", "+inf" if high is None else high)
    names = [f"w:{text_of(worker)}" for worker in client.zrangebyscore(leases, *limits)]
    pages = [names[start : start + _PAGE] for start in range(0, len(names), _PAGE)]
    texts = [text for page in pages for text in client.hmget(pool, page)]
    return _parse_records(fields, zip(names, texts, strict=True))


def _scan_records(client: Any, name: str, fields: _Fields) -> list[WorkerInfo]:
    """Return all workers, by worker id, without the index."""
    # a scan may return a record twice
    rows = dict(client.hscan_iter(pool_keys(name)[0], match="w:*", count=_PAGE))
    return _parse_records(fields, rows.items())


def _parse_records(fields: _Fields, rows: Iterable[tuple[Any, Any]]) -> list[WorkerInfo]:
    infos = (
        fields.parse(int(worker), text_of(text))
        for field, text in rows
        if text is not None and _is_worker(worker := text_of(field).removeprefix("w:"))
    )
    return sorted((info for info in infos if info is not None), key=lambda info: info.worker)


def read_worker(client: Any, name: str, worker: int) -> WorkerInfo | None:
    """Return one worker, alive or not; None if its worker id was never leased.

    Raises PoolNotFound, StoreUnavailable.
    """
    with translated(address(client)):
        fields = _read_fields(client, name)
        text = client.hget(pool_keys(name)[0], f"w:{worker}")
    return None if text is None else fields.parse(worker, text_of(text))


def read_record(client: Any, info: PoolInfo, worker: int) -> WorkerInfo | None:
    """Return one worker of a pool that was just read, alive or not; None if its worker id was never leased.

    Raises StoreUnavailable.
    """
    with translated(address(client)):
        text = client.hget(pool_keys(info.name)[0], f"w:{worker}")
    settling = info.incarnation if info.floor_ms > info.now_ms else ""
    return (
        None
        if text is None
        else parse_record(worker, text_of(text), info.now_ms, info.ttl_ms, settling=settling)
    )


def _index_is_complete(client: Any, leases: str, fields: _Fields) -> bool:
    """Return false if the index was lost and no claim has rebuilt it yet."""
    return int(client.zcard(leases)) == fields.number("records")


def _is_worker(text: str) -> bool:
    return re.fullmatch(r"0|[1-9]\d{0,6}", text, re.ASCII) is not None


def server_now_ms(client: Any, key: str) -> int:
    """Return the time of the server that stores *key*, in ms since 1970: lease ends are on that clock."""
    if is_cluster(client):
        client = client.get_redis_connection(client.get_node_from_key(key))
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
