"""What goes wrong in the field: looks at this host, at Redis servers and at their pools, and says what to do.

Reads only. What is looked at on a server is in server_checks.py, on this host in host.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from snowredis.errors import PoolNotFound, SnowredisError
from snowredis.lease.clients import address, is_cluster
from snowredis.lease.inspect import PoolInfo, WorkerInfo, setting_ms
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.monitor.findings import Finding, error, ok, unknown, warning
from snowredis.monitor.host import look_at_host
from snowredis.monitor.pool import WorkerPool
from snowredis.monitor.server_checks import UNIDENTIFIED, look_at_server, missing_identity
from snowredis.monitor.server_list import look_at_list

DAY_MS = 86_400_000
# nobody was alive for so long: it is forgotten rather than idle
STALE_MS = 7 * DAY_MS
# pools looked at, of those that a Redis has
MOST_POOLS = 100
# what makes up a floor beside ttl and lead
_OTHERS = ("redis_skew_ms", "failover_slack_ms")
# a reload that starts the new processes before the old ones end needs twice the worker ids
HALF_FULL, NEARLY_FULL = 0.5, 0.9


def diagnose(url: Any, name: str | None = None) -> list[Finding]:
    """Everything about this host, its Redis servers and their pools.

    Args:
        url: as WorkerPool takes it.
        name: of the one pool to look at; None: all of them.

    Blocks:
        some ten round trips to each server, and a few for each pool. Raises ConfigError for a URL that is none.
    """
    pool = WorkerPool(url, name or "default")
    findings = look_at_host()
    try:
        for client in pool._clients:
            findings += look_at_server(client, pool.name)
        if not any(finding.check == "redis" and finding.severity == "error" for finding in findings):
            findings += _look_at_pools(url, pool, name)
    finally:
        pool.close()
    return findings


# --- pools -----------------------------------------------------------------------------------------


def _look_at_pools(url: Any, found: WorkerPool, name: str | None) -> list[Finding]:
    try:
        names = found.pools()
    except SnowredisError as failure:
        if name is None:
            return [unknown("pools", f"SCAN is refused: {failure}", "name the pool with --pool")]
        names = [name]
    findings: list[Finding] = []
    if name is not None and name not in names:
        return [error("pools", str(PoolNotFound(name)), "see: snowredis pool show")]
    if not names:
        return [ok("pools", "there is none yet")]
    infos: list[PoolInfo] = []
    for one in names[:MOST_POOLS]:
        pool = WorkerPool(url, one)
        try:
            info = pool.info()
            infos.append(info)
            if name in (None, one):
                findings += _look_at_pool(pool, info)
        except SnowredisError as failure:
            findings.append(
                warning(f"pool {one}", str(failure), "if another program made this key, give it another name")
            )
        finally:
            pool.close()
    return findings + _alike(infos, name)


def _look_at_pool(pool: WorkerPool, info: PoolInfo) -> Iterator[Finding]:
    what, workers = f"pool {info.name}", pool.workers()
    yield from look_at_list(pool._clients, pool.name)
    yield from _of_life(what, info)
    yield from _of_use(what, pool, info)
    yield from _of_workers(what, workers, info)
    yield _of_durability(what, pool, info)
    failover = setting_ms(info.signature, "failover_slack_ms")
    replicas = [_replica_count(client) for client in pool._clients]
    if not failover and any(replicas):
        yield warning(
            what,
            f"failover_slack is 0, and Redis has {max(replicas)} replicas: a deposed master that still answers may "
            "repeat ids",
            "if replicas can become masters, make the pool anew with --failover-slack 15 (under another "
            "name or after a "
            "ttl without workers)",
        )
    if not workers:
        last_ms = _last_ms(pool)
        if last_ms and info.now_ms - last_ms > STALE_MS:
            days = (info.now_ms - last_ms) // DAY_MS
            yield warning(
                what,
                f"nobody was alive for {days} days",
                f"if it is not needed: snowredis pool delete {info.name}",
            )


def _of_life(what: str, info: PoolInfo) -> Iterator[Finding]:
    left_ms = info.layout_end_ms - info.now_ms
    if left_ms < 0:
        yield error(
            what,
            "the layout's timestamp bits are used up",
            "move to a layout with more of them or a later epoch",
        )
    elif left_ms < 365 * DAY_MS:
        yield warning(what, f"the layout ends in {left_ms // DAY_MS} days", "plan to move to another layout")
    else:
        yield ok(what, f"the layout lasts for {left_ms / DAY_MS / 365.25:,.0f} more years")
    if info.alarms:
        yield error(
            what,
            f"{info.alarms} alarms, the last: {info.alarm}",
            "look for ids that were made then in two tables: snowredis whois ID ID; a pool made with --guard-rollbacks "
            "notices a Redis that goes back by more than a ttl before anybody is served",
        )
    if info.floor_ms > info.now_ms:
        yield warning(
            what,
            f"new workers wait {(info.floor_ms - info.now_ms) / 1000:.1f} s more for the floor",
            "Redis was restarted, moved or wiped a moment ago, or the pool was deleted: just wait",
        )


def _of_use(what: str, pool: WorkerPool, info: PoolInfo) -> Iterator[Finding]:
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
        yield warning(what, f"it is used up in {days:.1f} days, {forecast.reason}", advice)


def _of_workers(what: str, workers: list[WorkerInfo], info: PoolInfo) -> Iterator[Finding]:
    quiet = [str(one.worker) for one in workers if one.state in ("late", "suspect")]
    if quiet:
        yield warning(
            what,
            f"{len(quiet)} workers missed heartbeats: {', '.join(quiet[:5])}",
            "they hang, were killed, or do not reach Redis: snowredis workers --watch",
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
    twins = sorted({name for name in names if names.count(name) > 1}) if len(names) < 5_000 else []
    if twins:
        yield warning(
            what,
            f"{len(twins)} names stand for several workers, such as {twins[0][0]}:{twins[0][1]}",
            "containers with one host name and pid, or several generators in a process: ids stay unique, but `whois` "
            "cannot tell them apart: give each a label",
        )


def _of_durability(what: str, pool: WorkerPool, info: PoolInfo) -> Finding:
    """Which durability holds, and whether the servers are such that it can."""
    stored = info.settings.get("durability", "detect")
    if stored == "none":
        wait_s = (
            info.ttl_ms + info.lead_ms + sum(setting_ms(info.signature, name) for name in _OTHERS)
        ) / 1000
        return ok(what, f"durability is none: losses go unnoticed, so every new worker waits {wait_s:.1f} s")
    if stored == "assured":
        if any(_has_no_log(client) for client in pool._clients):
            return warning(
                what,
                "durability is assured, but Redis keeps no append-only file: a restart loses acknowledged writes, and "
                "ids may be repeated",
                "set appendonly yes and appendfsync always, or make the pool anew with another durability",
            )
        return ok(
            what, "durability is assured: whoever made the pool said that no acknowledged write is lost"
        )
    try:
        missing = [text for client in pool._clients if (text := missing_identity(client, pool.name))]
    except SnowredisError as failure:
        return unknown(
            what, f"durability is detect; whether Redis shows which server it is, is not known: {failure}"
        )
    if missing:
        return error(what, f"durability is detect, but no worker id is leased: {missing[0]}", UNIDENTIFIED)
    return ok(what, "durability is detect, and Redis shows which server it is")


def _has_no_log(client: Any) -> bool:
    """Whether Redis says that it keeps no append-only file."""
    try:
        with translated(address(client)):
            told = {} if is_cluster(client) else client.info("persistence")
    except SnowredisError:
        return False
    return bool(told) and not int(told.get("aof_enabled", 1))


def _replica_count(client: Any) -> int:
    try:
        with translated(address(client)):
            return 0 if is_cluster(client) else int(client.info("replication").get("connected_slaves", 0))
    except SnowredisError:
        return 0


def _last_ms(pool: WorkerPool) -> int:
    """When a script last ran on the pool."""
    found = [0]
    for client in pool._clients:
        with translated(address(client)):
            text = text_of(client.hget(pool_keys(pool.name)[0], "last") or b"0")
        found.append(int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else 0)
    return max(found)


def _alike(infos: list[PoolInfo], name: str | None) -> list[Finding]:
    findings, seen = [], set()
    for info in infos:
        alike = [other.name for other in infos if info.makes_same_ids_as(other)]
        if len(alike) < 2 or (name is not None and name not in alike) or tuple(alike) in seen:
            continue
        seen.add(tuple(alike))
        findings.append(
            warning(
                "pools",
                f"{', '.join(alike[:5])}{' …' if len(alike) > 5 else ''} make the same ids",
                "if two of them fill one table, ids repeat: let both use one pool, or give them different "
                "datacenter bits",
            )
        )
    return findings
