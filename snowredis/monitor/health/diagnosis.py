"""Run all checks: of this host, of each Redis server, of each pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snowredis.errors import PoolNotFound, SnowredisError, StoreRefused
from snowredis.monitor.health.finding import Finding, Result, error, not_checked, ok, unknown, warning
from snowredis.monitor.health.host_checks import check_host
from snowredis.monitor.health.pool_checks import check_pool
from snowredis.monitor.health.server_checks import check_server
from snowredis.monitor.snapshot import PoolInfo
from snowredis.monitor.worker_pool import WorkerPool

# pools after these are not checked
MAX_POOLS = 100


def diagnose(url: Any, name: str | None = None, tag: str | None = None) -> list[Finding]:
    """Check this host, its Redis servers, their pools and tags.

    Args:
        url: as WorkerPool takes it.
        name: the pool to check; None: all pools, or none if *tag* is given.
        tag: the tag to check; None: all tags.

    Blocks:
        for about ten round trips to each server, and a few for each pool.

    Raises:
        ConfigError: *url* is not valid.
    """
    pool = WorkerPool(url, name or "default")
    findings = check_host()
    try:
        for client in pool._clients:
            findings += check_server(client, name, tag)
        unreachable = any(one.check == "redis" and one.severity == "error" for one in findings)
        if not unreachable and (name is not None or tag is None):
            findings += _check_pools(url, pool, name)
    finally:
        pool.close()
    return findings


def _check_pools(url: Any, any_pool: WorkerPool, name: str | None) -> Iterator[Finding]:
    """Check the pool *name*, or all pools; *any_pool* gives access to the servers."""
    try:
        names = any_pool.pools()
    except SnowredisError as failure:
        if name is None:
            yield Finding("pools", *not_checked(failure)._replace(advice="name the pool with --pool"))
            return
        names = [name]
    if name is not None and name not in names:
        yield Finding("pools", *error(str(PoolNotFound(name)), "see: snowredis pool show"))
        return
    if not names:
        yield Finding("pools", *ok("there is none yet"))
    infos: list[PoolInfo] = []
    for each in names[:MAX_POOLS]:
        pool = WorkerPool(url, each)
        try:
            infos.append(pool.info())
            if name in (None, each):
                yield from (Finding(f"pool {each}", *result) for result in check_pool(pool, infos[-1]))
        except StoreRefused as refused:
            yield Finding(f"pool {each}", *not_checked(refused))
        except SnowredisError as failure:
            advice = "if another program wrote this key, rename it there"
            yield Finding(f"pool {each}", *warning(str(failure), advice))
        finally:
            pool.close()
    yield from (Finding("pools", *result) for result in _check_equal_ids(infos, name))


def _check_equal_ids(infos: list[PoolInfo], name: str | None) -> Iterator[Result]:
    """List pools that make the same ids; with *name*, only those with this pool.

    No warning: that is no problem unless two of them fill one table, which cannot be seen from here.
    """
    groups = {tuple(other.name for other in infos if info.makes_same_ids_as(other)): None for info in infos}
    for group in groups:
        if len(group) > 1 and name in (None, *group):
            yield unknown(
                f"{', '.join(group[:5])}{' …' if len(group) > 5 else ''} make the same ids, which is fine "
                "for different tables",
                "if two of them fill one table, ids repeat: use one pool for both, or give them different datacenter "
                "bits",
            )
