"""All checks: of this host and its Redis (checks.py), of rights and tags (number_checks.py), and of each pool.

Those of a pool stand here: its status, workers and durability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from snowredis.errors import PoolNotFound, SnowredisError, StoreRefused, StoreUnavailable
from snowredis.monitor import checks
from snowredis.monitor.checks import Finding, error, not_checked, ok, unknown, warning
from snowredis.monitor.number_checks import check_logouts, check_rights, check_tags, pool_needs
from snowredis.monitor.owner import count
from snowredis.monitor.pool_monitor import PoolMonitor, PoolPoller, Reading
from snowredis.monitor.snapshot import PoolInfo, setting_ms
from snowredis.monitor.status import DO_NOT_RESTART
from snowredis.numbers.stores import tag_keys
from snowredis.servers.clients import address, is_cluster
from snowredis.servers.runner import server_of, translated
from snowredis.snowflake.protocol import pool_keys

# level of a condition -> severity of a finding
_SEVERITIES = {"notice": "warning", "unknown": "unknown", "warning": "warning", "critical": "error"}


def check_pool(pool: PoolMonitor, info: PoolInfo) -> Iterator[Finding]:
    """Run all checks of one pool. Blocks for a few round trips. Raises StoreUnavailable."""
    of_pool: dict[str, Callable[[], Iterable[Finding]]] = {
        "whether Redis takes writes": lambda: _check_writes(pool),
        "the status": lambda: _check_status(PoolPoller(pool).read()),
        "the workers": lambda: _check_workers(pool),
        "the durability": lambda: [_check_durability(pool, info)],
        "failover_slack": lambda: _check_replicas(pool, info),
    }
    for what, check in of_pool.items():
        try:
            yield from check()
        except StoreRefused as refused:
            yield not_checked(refused, what)


# question -> as a person asks it
_QUESTIONS = {"restart": "may I restart Redis now", "deploy": "may I deploy now"}


def _check_status(reading: Reading) -> Iterator[Finding]:
    if reading.error is not None:
        raise reading.error
    for each in reading.status.conditions:
        is_ok = each.level == "notice" and not each.advice
        yield Finding("", "ok" if is_ok else _SEVERITIES[each.level], each.text, each.advice)
    yield from (ok(f"{_QUESTIONS[each.question]}? {each.text}") for each in reading.answers)


def _check_writes(pool: PoolMonitor) -> Iterator[Finding]:
    """Try what every claim and every renewal does: write. The write changes nothing."""
    try:
        with translated(pool.where):
            pool.client.zadd(pool_keys(pool.name)[1], {"": 0}, xx=True)
    except StoreRefused:
        # a user who may only read; those of generators have a check of their rights
        raise
    except StoreUnavailable as failure:
        yield error(
            f"Redis takes no writes, so no lease is renewed and none is claimed: {failure}",
            f"let Redis take writes again. Until then, {DO_NOT_RESTART}",
        )
    else:
        yield ok(f"{pool.where} takes writes")


def _check_workers(pool: PoolMonitor) -> Iterator[Finding]:
    names = Counter(worker.owner.name for worker in pool.workers())
    shared = sorted(name for name, times in names.items() if times > 1)
    if shared:
        yield warning(
            f"{count(len(shared), 'name is', 'names are')} used by several workers, such as "
            f"{shared[0][0]}:{shared[0][1]}",
            "containers with one host name and pid, or several generators in a process: ids stay unique, but `whois` "
            "cannot tell them apart: give each a label",
        )


def _check_durability(pool: PoolMonitor, info: PoolInfo) -> Finding:
    """Check that the server is fit for the durability of the pool."""
    stored = info.settings.get("durability", "detect")
    if stored == "none":
        wait_s = info.floor_length_ms / 1000
        return ok(f"durability is none: data loss is not detected, so every new worker waits {wait_s:.1f} s")
    if stored == "assured":
        if not int(_info(pool.client, "persistence").get("aof_enabled", 1)):
            return warning(
                "durability is assured, but Redis has no append-only file: a restart loses acknowledged writes, and "
                "ids may be repeated",
                "set appendonly yes and appendfsync always, or create the pool again with another durability",
            )
        return ok("durability is assured: the creator of the pool stated that no acknowledged write is lost")
    try:
        missing = checks.missing_identity(pool.client, pool_keys(pool.name)[0])
    except SnowredisError as failure:
        return not_checked(failure, "durability is detect; whether Redis can be identified")
    if missing:
        return error(f"durability is detect, but no worker id is leased: {missing}", checks.UNIDENTIFIED)
    return ok("durability is detect, and Redis can be identified")


def _check_replicas(pool: PoolMonitor, info: PoolInfo) -> Iterator[Finding]:
    replicas = int(_info(pool.client, "replication").get("connected_slaves", 0))
    if replicas and not setting_ms(info.signature, "failover_slack_ms"):
        yield warning(
            f"failover_slack is 0, and Redis has {count(replicas, 'replica')}: a deposed master that still answers may "
            "repeat ids",
            "if replicas can become masters, create the pool again with --failover-slack 15 (under another name, or "
            "after a ttl without workers)",
        )


def _info(client: Any, section: str) -> dict[str, Any]:
    """Return a section of INFO; empty for a Cluster, and if INFO is refused."""
    try:
        with translated(address(client)):
            return {} if is_cluster(client) else dict(client.info(section))
    except SnowredisError:
        return {}


# pools after these are not checked
MAX_POOLS = 100


def diagnose(url: Any, name: str | None = None, tag: str | None = None) -> list[Finding]:
    """Check this host, its Redis, its pools and tags.

    Args:
        url: as WorkerPool takes it.
        name: the pool to check; None: all pools, or none if *tag* is given.
        tag: the tag to check; None: all tags.

    Blocks:
        for about ten round trips to Redis, and a few for each pool.

    Raises:
        ConfigError: *url* is not valid.
    """
    pool = PoolMonitor(url, name)
    findings = checks.check_host()
    try:
        findings += _check_server(pool.client, name, tag)
        unreachable = any(one.check == "redis" and one.severity == "error" for one in findings)
        if not unreachable and (name is not None or tag is None):
            findings += _check_pools(url, pool, name)
    finally:
        pool.close()
    return findings


def _check_server(client: Any, pool: str | None, tag: str | None) -> Iterator[Finding]:
    """Check the server of *client*, the rights on its pool or tags, and its tags.

    Args:
        pool: the pool whose keys are used; None: the default one, or those of *tag*.
        tag: the tag to check; None: all tags.
    """
    key = tag_keys(tag)[0] if tag is not None and pool is None else pool_keys(pool or "default")[0]
    try:
        with translated(address(client)):
            client.ping()
    except StoreUnavailable as failure:
        # a user who may not run PING is connected nevertheless
        if not (isinstance(failure, StoreRefused) and failure.code == "no-permission"):
            yield error(str(failure), f"nothing else was checked. Meanwhile, {DO_NOT_RESTART}").of("redis")
            return
    client = server_of(client, key)
    yield from checks.check_server(client, key)
    if pool is not None or tag is None:
        yield check_rights(client, [pool_needs(pool or "default")]).of("rights")
        yield check_logouts(client).of("logouts")
    yield from check_tags(client, tag)


def _check_pools(url: Any, any_pool: PoolMonitor, name: str | None) -> Iterator[Finding]:
    """Check the pool *name*, or all pools; *any_pool* gives access to the server."""
    try:
        names = any_pool.pools()
    except SnowredisError as failure:
        if name is None:
            yield not_checked(failure)._replace(advice="name the pool with --pool").of("pools")
            return
        names = [name]
    if name is not None and name not in names:
        yield error(str(PoolNotFound(name)), "see: snowredis pool show").of("pools")
        return
    if not names:
        yield ok("there is none yet").of("pools")
    infos: list[PoolInfo] = []
    for each in names[:MAX_POOLS]:
        pool = PoolMonitor(url, each)
        try:
            infos.append(pool.info())
            if name in (None, each):
                yield from (result.of(f"pool {each}") for result in check_pool(pool, infos[-1]))
        except StoreRefused as refused:
            yield not_checked(refused).of(f"pool {each}")
        except SnowredisError as failure:
            advice = "if another program wrote this key, rename it there"
            yield warning(str(failure), advice).of(f"pool {each}")
        finally:
            pool.close()
    yield from (result.of("pools") for result in _check_equal_ids(infos, name))


def _check_equal_ids(infos: list[PoolInfo], name: str | None) -> Iterator[Finding]:
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
