"""Check one pool: its layout, its use, its workers, its durability, its place on each server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from snowredis.errors import SnowredisError
from snowredis.lease.clients import address, is_cluster
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.monitor.health.finding import Finding, error, ok, unknown, warning
from snowredis.monitor.health.server_checks import UNIDENTIFIED, missing_identity
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo, setting_ms
from snowredis.monitor.worker_pool import WorkerPool

DAY_MS = 86_400_000
# a pool without workers for this long is forgotten rather than idle
STALE_MS = 7 * DAY_MS
# besides ttl and max_clock_lead, these make up the floor
_FLOOR_PARTS = ("redis_skew_ms", "failover_slack_ms")
# a reload that starts the new processes before the old ones end needs twice the worker ids
HALF_FULL, NEARLY_FULL = 0.5, 0.9


def check_pool(pool: WorkerPool, info: PoolInfo) -> Iterator[Finding]:
    """Run all checks of one pool. Blocks for a few round trips. Raises StoreUnavailable."""
    what, workers = f"pool {info.name}", pool.workers()
    yield from _check_server_list(what, pool)
    yield from _check_lifetime(what, info)
    yield from _check_use(what, pool, info)
    yield from _check_workers(what, workers, info)
    yield _check_durability(what, pool, info)
    replicas = sum(int(_info(client, "replication").get("connected_slaves", 0)) for client in pool._clients)
    if replicas and not setting_ms(info.signature, "failover_slack_ms"):
        yield warning(
            what,
            f"failover_slack is 0, and Redis has {replicas} replicas: a deposed master that still answers may repeat "
            "ids",
            "if replicas can become masters, create the pool again with --failover-slack 15 (under another name, or "
            "after a ttl without workers)",
        )
    last_ms = 0 if workers else _last_write_ms(pool)
    if last_ms and info.now_ms - last_ms > STALE_MS:
        yield warning(
            what,
            f"no worker was alive for {(info.now_ms - last_ms) // DAY_MS} days",
            f"if it is not needed: snowredis pool delete {info.name}",
        )


def _check_server_list(what: str, pool: WorkerPool) -> Iterator[Finding]:
    """Find pools on several servers that no process can use together."""
    signatures: dict[int, str] = {}
    for index, client in enumerate(pool._clients):
        with translated(address(client)):
            signature = client.hget(pool_keys(pool.name)[0], "signature")
        if signature:
            signatures[index] = text_of(signature)
    count = len(pool._clients)
    if count < 2 or not signatures:
        return
    common = re.sub(r" share=\d+/\d+$", "", next(iter(signatures.values())))
    if all(signature == f"{common} share={index}/{count}" for index, signature in signatures.items()):
        return
    listed = "; ".join(f"{address(pool._clients[index])} has {text}" for index, text in signatures.items())
    yield error(
        what,
        f"the pools of the {count} servers do not belong together, so that new workers can be refused: {listed}",
        "list the servers in the order of their shares, if each share is there once and the rest is equal. Otherwise "
        f"stop all workers, wait for a ttl, run `snowredis pool delete {pool.name}` on each wrong server alone, and "
        "`snowredis pool create` on the whole list",
    )


def _check_lifetime(what: str, info: PoolInfo) -> Iterator[Finding]:
    left_ms = info.layout_end_ms - info.now_ms
    if left_ms < 0:
        yield error(
            what,
            "the layout's timestamp bits are used up",
            "move to a layout with more of them or a later epoch",
        )
    elif left_ms < 365 * DAY_MS:
        yield warning(what, f"the layout ends in {left_ms // DAY_MS} days", "plan the move to another layout")
    else:
        yield ok(what, f"the layout lasts for {left_ms / DAY_MS / 365.25:,.0f} more years")
    if info.alarms:
        yield error(
            what,
            f"{info.alarms} alarms, the last: {info.alarm}",
            "look for ids of that time that two rows share: snowredis whois ID ID; a pool made with --guard-rollbacks "
            "detects a Redis that was rolled back by more than a ttl before it serves any worker",
        )
    if info.floor_ms > info.now_ms:
        yield warning(
            what,
            f"new workers wait {(info.floor_ms - info.now_ms) / 1000:.1f} s more for the floor",
            "Redis was restarted, moved or wiped a moment ago, or the pool was deleted: wait",
        )


def _check_use(what: str, pool: WorkerPool, info: PoolInfo) -> Iterator[Finding]:
    share, use = (
        info.used / max(1, info.capacity),
        f"{info.used:,} of {info.capacity:,} worker ids are leased",
    )
    advice = "stop idle processes, or move to a layout with more worker bits"
    if share >= NEARLY_FULL:
        yield error(what, use, advice)
    elif share > HALF_FULL:
        yield warning(
            what, use, f"a reload that starts new processes before old ones end needs twice as many: {advice}"
        )
    else:
        yield ok(what, f"{use}, {info.peak:,} at the most so far")
    forecast = pool.forecast(info)
    if (
        forecast.used_up_ms is not None
        and forecast.used_up_ms - info.now_ms < 30 * DAY_MS
        and share < NEARLY_FULL
    ):
        days = (forecast.used_up_ms - info.now_ms) / DAY_MS
        yield warning(what, f"it will be used up in {days:.1f} days, {forecast.reason}", advice)


def _check_workers(what: str, workers: list[WorkerInfo], info: PoolInfo) -> Iterator[Finding]:
    late = [str(one.worker) for one in workers if one.state in ("late", "suspect")]
    if late:
        yield warning(
            what,
            f"{len(late)} workers missed heartbeats: {', '.join(late[:5])}",
            "they hang, were killed, or cannot reach Redis: snowredis workers --watch",
        )
    lead_ms = info.lead_ms
    off = [
        f"{one.host} ({one.clock_offset_ms:+,} ms)"
        for one in workers
        if abs(one.clock_offset_ms) > max(1, lead_ms)
    ]
    if off:
        yield warning(
            what, f"{len(off)} workers' clocks are off: {', '.join(off[:5])}", "synchronize their clocks"
        )
    names = [(one.host, one.pid, one.label) for one in workers]
    shared = sorted({name for name in names if names.count(name) > 1}) if len(names) < 5_000 else []
    if shared:
        yield warning(
            what,
            f"{len(shared)} names are used by several workers, such as {shared[0][0]}:{shared[0][1]}",
            "containers with one host name and pid, or several generators in a process: ids stay unique, but `whois` "
            "cannot tell them apart: give each a label",
        )


def _check_durability(what: str, pool: WorkerPool, info: PoolInfo) -> Finding:
    """Check that the servers are fit for the durability of the pool."""
    stored = info.settings.get("durability", "detect")
    if stored == "none":
        wait_s = (
            info.ttl_ms + info.lead_ms + sum(setting_ms(info.signature, name) for name in _FLOOR_PARTS)
        ) / 1000
        return ok(
            what, f"durability is none: data loss is not detected, so every new worker waits {wait_s:.1f} s"
        )
    if stored == "assured":
        if any(not int(_info(client, "persistence").get("aof_enabled", 1)) for client in pool._clients):
            return warning(
                what,
                "durability is assured, but Redis has no append-only file: a restart loses acknowledged writes, and "
                "ids may be repeated",
                "set appendonly yes and appendfsync always, or create the pool again with another durability",
            )
        return ok(
            what, "durability is assured: the creator of the pool stated that no acknowledged write is lost"
        )
    try:
        missing = [text for client in pool._clients if (text := missing_identity(client, pool.name))]
    except SnowredisError as failure:
        return unknown(
            what, f"durability is detect; the check whether Redis can be identified failed: {failure}"
        )
    if missing:
        return error(what, f"durability is detect, but no worker id is leased: {missing[0]}", UNIDENTIFIED)
    return ok(what, "durability is detect, and Redis can be identified")


def _info(client: Any, section: str) -> dict[str, Any]:
    """Return a section of INFO; empty for a Cluster, and if INFO is refused."""
    try:
        with translated(address(client)):
            return {} if is_cluster(client) else dict(client.info(section))
    except SnowredisError:
        return {}


def _last_write_ms(pool: WorkerPool) -> int:
    """Return when a script last ran on the pool, in ms since 1970; 0 if that is not known."""
    times = [0]
    for client in pool._clients:
        with translated(address(client)):
            text = text_of(client.hget(pool_keys(pool.name)[0], "last") or b"0")
        times.append(int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else 0)
    return max(times)
