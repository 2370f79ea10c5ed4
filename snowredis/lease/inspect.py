"""Read a pool for monitoring: plain read commands, no script, nothing written.

What comes out of Redis here is what any process put in: hosts and labels are untrusted text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.lease.clients import address, is_cluster
from snowredis.lease.model import HEARTBEATS_PER_TTL, parse_share, share_of
from snowredis.lease.redis_store import translated
from snowredis.lease.replies import Alarm
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.lease.stats import WorkerStats

_RECORD = re.compile(
    r"(?P<token>[\da-fA-F]*)\|(?P<incarnation>[\da-fA-F-]*)\|(?P<renewal_id>[\da-fA-F]*)\|(?P<until>\d{1,14})\|"
    r"(?P<lease_end>\d{1,14})\|(?P<lanes>[\d,]*)\|(?P<claimed>\d{1,14})\|(?P<renewed>\d{1,14})\|"
    r"(?P<stats>[\d,-]*)\|(?P<owner>.*)",
    re.DOTALL | re.ASCII,
)
# records asked for in one command
_PAGE = 500
# best first; see state_of()
STATES = ("healthy", "late", "suspect", "expired", "free")


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker id and who has it, as of one look at Redis. Times are ms on the Redis clock.

    Attributes:
        worker: the worker id.
        alive: whether its lease has not ended.
        host, pid, label: who says to hold it; untrusted text.
        claimed_ms, renewed_ms, lease_end_ms: since when, last heartbeat, until when.
        lease_left_ms: how long the lease lasts; 0 when it ended.
        reserved_until_ms: the end of its reservation, on its own clock.
        ids_made, ids_per_second: as of its last heartbeat, since its claim and since the heartbeat before.
        clock_offset_ms: its clock less that of Redis.
        namespace: the backup bits in use.
        clock_backs: how often its clock went back.
        token_hash: names the claim; it is no secret, the token cannot be made from it.
        heartbeat_age_ms: how long ago the last heartbeat, or the claim, was.
        state: one of STATES.
    """

    worker: int
    alive: bool
    host: str
    pid: int
    label: str
    claimed_ms: int
    renewed_ms: int
    lease_end_ms: int
    lease_left_ms: int
    reserved_until_ms: int
    ids_made: int
    ids_per_second: int
    clock_offset_ms: int
    namespace: int
    clock_backs: int
    token_hash: str
    heartbeat_age_ms: int = 0
    state: str = "healthy"


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool as of one look at Redis. Times are ms on the Redis clock.

    ``layout_end_ms`` is the first ms that the layout's timestamp bits cannot show any more.
    """

    name: str
    layout: Layout
    signature: str
    now_ms: int
    created_ms: int
    floor_ms: int
    incarnation: str
    version: int
    capacity: int
    used: int
    free: int
    peak: int
    claims: int
    releases: int
    expired: int
    adopted: int
    lost: int
    alarms: int
    alarm: str

    @property
    def settings(self) -> dict[str, str]:
        """The signature's parts by name: layout, datacenter, ttl_ms, …"""
        return settings_of(self.signature)

    @property
    def share(self) -> tuple[int, int]:
        """Which part of the layout's worker ids this server leases: (index, count of servers)."""
        return parse_share(self.settings.get("share", ""))

    def makes_same_ids_as(self, other: PoolInfo) -> bool:
        """Return true if ids of this pool and of *other* can be equal, so that they must not fill one table."""
        datacenters = [info.settings.get("datacenter") for info in (self, other)]
        return self.layout == other.layout and datacenters[0] == datacenters[1]

    @property
    def layout_end_ms(self) -> int:
        return self.layout.end_ms

    @property
    def ttl_ms(self) -> int:
        """Of the pool; 0 if its signature does not say."""
        return setting_ms(self.signature, "ttl_ms")

    @property
    def lead_ms(self) -> int:
        """How far a host's clock may run ahead of Redis'."""
        return setting_ms(self.signature, "max_clock_lead_ms")


def settings_of(signature: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in signature.split(" ") if "=" in part)


def setting_ms(signature: str, name: str) -> int:
    """A number of ms in a signature; 0 if there is none."""
    text = settings_of(signature).get(name, "")
    return int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else 0


def state_of(heartbeat_age_ms: int, lease_left_ms: int, ttl_ms: int, *, claimed: bool = True) -> str:
    """How a worker is, one of STATES.

    healthy: its last heartbeat is younger than two heartbeats (ttl/3). late: younger than half a ttl.
    suspect: older, but its lease lasts. expired: its lease ended. free: it was given back.
    """
    if not claimed:
        return "free"
    if lease_left_ms <= 0:
        return "expired"
    if heartbeat_age_ms * HEARTBEATS_PER_TTL < 2 * ttl_ms:
        return "healthy"
    return "late" if heartbeat_age_ms * 2 < ttl_ms else "suspect"


def list_pools(client: Any) -> list[str]:
    """The names of all pools in this Redis. Scans its keys: for people, not for loops."""
    with translated(address(client)):
        names = {
            match.group(1)
            for key in client.scan_iter(match="snowredis:{*}", count=1000)
            if (match := re.fullmatch(r"snowredis:\{(.+)\}", text_of(key)))
        }
    return sorted(name for name in names if not _was_deleted(client, name))


def _was_deleted(client: Any, name: str) -> bool:
    """Return true if only the floor of a deleted pool is left; false for a key of another type."""
    try:
        with translated(address(client)):
            return client.hget(pool_keys(name)[0], "signature") is None
    except StoreUnavailable:
        return False


def read_pool(client: Any, name: str) -> PoolInfo:
    """The pool's own state. Raises PoolNotFound, StoreUnavailable."""
    pool, leases, _ = pool_keys(name)
    fields = [
        "signature",
        "created",
        "floor",
        "incarnation",
        "version",
        "peak",
        "claims",
        "releases",
        "expired",
        "adopted",
        "lost",
        "alarms",
        "alarm",
    ]
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        values = [text_of(value or b"") for value in client.hmget(pool, fields)]
        if _index_is_whole(client, leases, client.hget(pool, "records")):
            used = int(client.zcount(leases, f"({now_ms}", "+inf"))
        else:
            used = len(read_workers(client, name)) if values[0] else 0
    value = dict(zip(fields, values, strict=True))
    if not value["signature"]:
        raise PoolNotFound(name)

    def number(field: str) -> int:
        text = value[field] or "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise StoreUnavailable(
                address(client), f"pool {name!r} has a {field} that is no number: {text[:20]!r}"
            )
        return int(text)

    try:
        settings = settings_of(value["signature"])
        layout = resolve_layout(settings["layout"])
        capacity = share_of(layout.workers, parse_share(settings.get("share", "")))
    except (KeyError, ConfigError, ValueError) as error:
        raise StoreUnavailable(
            address(client), f"pool {name!r} has a signature that is none: {error}"
        ) from error
    return PoolInfo(
        name=name,
        layout=layout,
        signature=value["signature"],
        now_ms=now_ms,
        created_ms=number("created"),
        floor_ms=number("floor"),
        incarnation=value["incarnation"],
        version=number("version"),
        capacity=capacity,
        used=used,
        free=capacity - used,
        peak=number("peak"),
        claims=number("claims"),
        releases=number("releases"),
        expired=number("expired"),
        adopted=number("adopted"),
        lost=number("lost"),
        alarms=number("alarms"),
        alarm=_alarm_text(value["alarm"]),
    )


def _alarm_text(stored: str) -> str:
    """Return the text of a stored alarm; what no script wrote as it is."""
    try:
        return Alarm.parse(stored).text
    except ValueError:
        return stored


def read_workers(client: Any, name: str, *, alive_only: bool = True) -> list[WorkerInfo]:
    """Who holds which worker id, by worker id. With *alive_only* false also those whose lease ended.

    Raises PoolNotFound, StoreUnavailable.
    """
    pool, leases, _ = pool_keys(name)
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        known, records = client.hmget(pool, ["signature", "records"])
        if not known:
            raise PoolNotFound(name)
        if _index_is_whole(client, leases, records):
            low = f"({now_ms}" if alive_only else "-inf"
            members = [text_of(worker) for worker in client.zrangebyscore(leases, low, "+inf")]
            rows = list(_get_records(client, pool, [int(worker) for worker in members if _is_worker(worker)]))
        else:
            # a scan may come by the same record twice
            rows = list(dict(_scan_records(client, pool)).items())
    ttl_ms = setting_ms(text_of(known), "ttl_ms")
    infos = [
        info for worker, text in rows if (info := parse_record(worker, text, now_ms, ttl_ms)) is not None
    ]
    return sorted((info for info in infos if info.alive or not alive_only), key=lambda info: info.worker)


def read_worker(client: Any, name: str, worker: int) -> WorkerInfo | None:
    """One worker id, whether its lease lasts or not; None if nobody ever had it. Raises StoreUnavailable."""
    pool = pool_keys(name)[0]
    with translated(address(client)):
        now_ms = server_now_ms(client, pool)
        known, text = client.hmget(pool, ["signature", f"w:{worker}"])
    ttl_ms = setting_ms(text_of(known or b""), "ttl_ms")
    return None if text is None else parse_record(worker, text_of(text), now_ms, ttl_ms)


def parse_record(worker: int, text: str, now_ms: int, ttl_ms: int = 0) -> WorkerInfo | None:
    """Read what common.lua's pack_record() wrote; None for what is no record."""
    match = _RECORD.fullmatch(text)
    if match is None:
        return None
    host, pid, label = parse_owner(match["owner"])
    stats = WorkerStats.from_text(match["stats"])
    lease_end_ms, renewed_ms = int(match["lease_end"]), int(match["renewed"])
    lease_left_ms, age_ms = max(0, lease_end_ms - now_ms), max(0, now_ms - renewed_ms)
    return WorkerInfo(
        worker=worker,
        alive=bool(match["token"]) and lease_end_ms > now_ms,
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
        state=state_of(age_ms, lease_left_ms, ttl_ms, claimed=bool(match["token"])),
    )


def parse_owner(text: str) -> tuple[str, int, str]:
    """Host, pid and label as a process wrote them; untrusted, and nothing of what is not text or a number."""
    try:
        owner = json.loads(text or "{}")
    except (ValueError, RecursionError):
        owner = {}
    if not isinstance(owner, dict):
        owner = {}
    pid = owner.get("pid", 0)
    return (
        _printable(owner.get("host", "")),
        pid if type(pid) is int else 0,
        _printable(owner.get("label", "")),
    )


def _get_records(client: Any, pool: str, workers: list[int]) -> Iterator[tuple[int, str]]:
    for start in range(0, len(workers), _PAGE):
        page = workers[start : start + _PAGE]
        for worker, text in zip(page, client.hmget(pool, [f"w:{worker}" for worker in page]), strict=True):
            if text is not None:
                yield worker, text_of(text)


def _scan_records(client: Any, pool: str) -> Iterator[tuple[int, str]]:
    for field, text in client.hscan_iter(pool, match="w:*", count=_PAGE):
        worker = text_of(field)[2:]
        if _is_worker(worker):
            yield int(worker), text_of(text)


def _index_is_whole(client: Any, leases: str, records: bytes | str | None) -> bool:
    """Whether the index can be used; false if it was lost and no claim has rebuilt it yet."""
    return str(client.zcard(leases)) == text_of(records or b"0")


def _is_worker(text: str) -> bool:
    return re.fullmatch(r"0|[1-9]\d{0,6}", text, re.ASCII) is not None


def _printable(value: object) -> str:
    """Text that can be encoded, since JSON can spell half a character; nothing if it is no text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def server_now_ms(client: Any, key: str) -> int:
    """The clock of the server that has *key*: lease ends are on that clock."""
    if is_cluster(client):
        client = client.get_redis_connection(client.get_node_from_key(key))
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
