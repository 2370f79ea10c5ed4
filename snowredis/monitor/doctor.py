"""All checks: those of this host and its Redis are in checks.py. Here are those of what is in that Redis.

Each pool: its status, workers and durability. The tags: whether they are open, and what a restart costs them. And the
rights: which commands the credentials of this process may run on the keys of a pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from snowredis.errors import REFUSED, LayoutMismatch, PoolNotFound, SnowredisError, StoreUnavailable, count
from snowredis.monitor import checks
from snowredis.monitor.checks import attempted, critical, not_checked, ok, unknown, warning
from snowredis.monitor.conditions import DO_NOT_RESTART, Condition, Level, answers, status_of
from snowredis.monitor.pool import PoolInfo, Refusal, Snapshot
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.monitor.pool_reader import names_of_keys
from snowredis.numbers import stores
from snowredis.numbers.administration import read_tag
from snowredis.servers.clients import OwnClient, address, is_cluster
from snowredis.servers.runner import server_of, translated
from snowredis.servers.scripts import Script, text_of
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.redis_store import SCRIPTS, load


def check_pool(server: OwnClient, name: str) -> Iterator[Condition]:
    """Run all checks of one pool, or of a key that only looks like one. Blocks for a few round trips."""
    subject = f"pool {name}"
    try:
        pool = PoolMonitor(server, name)
        snapshot = pool.snapshot()
    except LayoutMismatch as failure:
        yield unknown(f"what its workers do is unknown: {failure}").of("unread", subject)
    except PoolNotFound as failure:
        yield critical(str(failure), "see: snowredis pool show").of("pools", subject)
    except SnowredisError as failure:
        found = warning(str(failure), "if another program wrote this key, rename it there")
        yield (not_checked(failure) if failure.code in REFUSED else found).of("status", subject, advice=_ADVICE)
    else:
        (writes,) = attempted("writes", lambda: [_check_writes(pool)], subject)
        yield writes
        yield from (each.of("status", subject) for each in _check_status(snapshot, writes))
        yield from attempted("durability", lambda: [_check_durability(pool, snapshot.info)], subject)
        yield from attempted("failover-slack", lambda: _check_replicas(pool, snapshot.info), subject)


# question -> as a person asks it
_QUESTIONS = {"restart": "may I restart Redis now", "deploy": "may I deploy now"}


def _check_status(snapshot: Snapshot, writes: Condition) -> Iterator[Condition]:
    status = status_of(snapshot)
    yield from status.conditions or [ok(status.headline)]
    if writes.level == "critical":
        # this process has no lease that Redis could refuse to renew
        snapshot = replace(snapshot, refusal=Refusal(writes.text, snapshot.info.now_ms))
    for each in answers(snapshot):
        level: Level = "unknown" if each.answer == "unknown" else "ok"
        yield Condition(level, f"{_QUESTIONS[each.question]}? {each.text}", code=each.question)


def _check_writes(pool: PoolMonitor) -> Condition:
    """Try what every claim and every renewal does: write. The write changes nothing."""
    try:
        with translated(pool.where):
            pool.client.zadd(pool_keys(pool.name)[1], {"": 0}, xx=True)
    except StoreUnavailable as failure:
        if failure.code in REFUSED:
            # a user who may only read; those of generators have a check of their rights
            raise
        return critical(
            f"Redis takes no writes, so through it no lease is renewed and none is claimed: {failure}",
            f"let Redis take writes again. Until then, {DO_NOT_RESTART}",
        )
    return ok(f"{pool.where} takes writes")


def _check_durability(pool: PoolMonitor, info: PoolInfo) -> Condition:
    """Check that the server is fit for the durability of the pool."""
    stored = info.config.durability
    if stored == "none":
        wait_s = info.config.floor_ms / 1000
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
        return critical(
            f"durability is detect, but with this URL no worker id can be leased: {missing}", checks.UNIDENTIFIED
        )
    return ok("durability is detect, and Redis can be identified")


def _check_replicas(pool: PoolMonitor, info: PoolInfo) -> Iterator[Condition]:
    replicas = int(_info(pool.client, "replication").get("connected_slaves", 0))
    slack_ms = info.config.failover_slack_ms
    # the default, which is for clocks that differ
    if replicas and slack_ms <= info.config.ttl_ms // 12:
        yield warning(
            f"failover_slack is {slack_ms / 1000:g} s, and Redis has {count(replicas, 'replica')}: a deposed master "
            "that answers for longer may repeat ids",
            "if replicas can become masters, create the pool again with --failover-slack 18 (under another name, or "
            "after a ttl without workers)",
        )


def _info(client: Any, section: str) -> dict[str, Any]:
    """Return a section of INFO; empty for a Cluster, and if INFO is refused."""
    try:
        with translated(address(client)):
            return {} if is_cluster(client) else dict(client.info(section))
    except SnowredisError:
        return {}


# --- rights ------------------------------------------------------------------------------------------

# a command, and the number of the key that it is called on, from 1; 0: none
Call = tuple[str, int]
# how many arguments ACL DRYRUN needs after the key of a command
_ARGUMENTS = {
    **dict.fromkeys(("del", "unlink", "zcard"), 0),
    **dict.fromkeys(("hget", "hmget", "hdel", "hexists", "zrem"), 1),
    **dict.fromkeys(("hset", "hincrby", "zadd", "zcount", "zrange", "zrangebyscore"), 2),
    "xadd": 3,
}
# these commands take all keys
_OF_SCRIPTS = {"eval": "return 1", "evalsha": "0" * 40}
_ADVICE = "docs/how-to/monitoring.md has the rules that generators need, and those that are enough for monitoring"


def calls_of_pools() -> list[Call]:
    """Return what the scripts of generators call."""
    return calls_in(map(load, SCRIPTS))


def calls_in(scripts: Iterable[Script]) -> list[Call]:
    """Return what Lua scripts call."""
    text = "\n".join(script.source for script in scripts)
    found = re.findall(r"redis\.p?call\('(\w+)'(?:, KEYS\[(\d+)\])?", text)
    return sorted({(command.lower(), int(key or 0)) for command, key in found})


def check_rights(client: Any, pool: str) -> Condition:
    """Check that the user of *client* may run everything that generators of *pool* need."""
    try:
        user, refused = _refused(client, pool_keys(pool))
    except SnowredisError:
        return _try_script(client, pool_keys(pool)[0])
    if refused:
        return warning(f"user {user} may not {refused} of pool {pool}", _ADVICE)
    return ok(f"user {user} may run all commands that generators of pool {pool} need")


def _refused(client: Any, keys: Sequence[str]) -> tuple[str, str]:
    """Return the user of *client*, and which calls on *keys* are refused to that user; "" if none is."""
    commands = [(name, script, str(len(keys)), *keys) for name, script in _OF_SCRIPTS.items()]
    for name, number in calls_of_pools():
        # time and info take no key, and need no arguments
        commands.append((name, keys[number - 1], *["1"] * _ARGUMENTS[name]) if number else (name,))
    with translated(address(client)):
        user = text_of(client.acl_whoami())
        dry_runs = client.pipeline(transaction=False)
        for command in commands:
            dry_runs.execute_command("ACL", "DRYRUN", user, *command)
        replies = dry_runs.execute(raise_on_error=False)
        if errors := [each for each in replies if isinstance(each, Exception) and "' not found" not in str(each)]:
            raise errors[0]
    # "Command 'zadd' not found": it was renamed there
    texts = [
        f"run the {str(each).split()[1]} command" if isinstance(each, Exception) else text_of(each) for each in replies
    ]
    # the end of each "User app has no permissions to run the 'zadd' command", once
    refused = dict.fromkeys(text.rpartition(" permissions to ")[2] for text in texts if text != "OK")
    return user, " nor ".join(refused)


def _try_script(client: Any, key: str) -> Condition:
    try:
        checks.missing_identity(client, key)
    except SnowredisError as failure:
        return unknown(f"no script runs for this user, so generators cannot use it: {failure}", _ADVICE)
    return unknown("scripts are allowed; ACL DRYRUN is not, so other rights are not known")


# --- tags --------------------------------------------------------------------------------------------


def tag_names(client: Any) -> list[str]:
    """Return the names of the tags on the server of *client*. Raises StoreUnavailable."""
    return sorted(set(names_of_keys(client, stores.tag_keys("*")[0])))


def check_tags(client: Any) -> Condition:
    """Check that all tags are open, and that a restart of this Redis loses none of their numbers."""
    number, closed = 0, []
    for tag in tag_names(client):
        try:
            info = read_tag(stores.RedisTag(client, tag))
        except StoreUnavailable as failure:
            if failure.code != "broken":
                raise
            closed.append(f"{tag} (not readable: {failure.reason})")
            continue
        # None: deleted meanwhile, or a key of another program
        number += info is not None
        if info is not None and info.state != "open":
            closed.append(f"{tag} ({info.why or 'of another version'})")
    if closed:
        return critical(
            f"{count(len(closed), 'tag')} of numbers that hand out none: {', '.join(closed)}",
            "snowredis numbers show TAG says more. Create one that this Redis does not know above all numbers in use: "
            "snowredis numbers create TAG --start N. Open others, and dated ones: snowredis numbers open TAG --from N",
        )
    if number and not int(_info(client, "persistence").get("aof_enabled", 1)):
        return warning(
            f"{count(number, 'tag')} of numbers, and no append-only file: a crash of Redis loses what was handed out "
            "since the last snapshot, and closes them",
            "set appendonly yes; with appendfsync always, a tag that was created with --durability assured is closed "
            "by no restart",
        )
    return ok(f"{count(number, 'tag')} of numbers, all open" if number else "no tags of numbers here")


# --- all ---------------------------------------------------------------------------------------------

# pools after these are not checked
MAX_POOLS = 100


def diagnose(url: Any, name: str | None = None) -> list[Condition]:
    """Check this host, its Redis, its pools and tags.

    Args:
        url: as WorkerPool takes it.
        name: the pool to check; None: all pools.

    Blocks:
        for about ten round trips to Redis, a few for each pool, and one for each tag.

    Raises:
        ConfigError: *url* is not valid.
    """
    pool = PoolMonitor(url, name)
    found = [checks.check_crash_records().of("crash records")]
    try:
        found += _check_server(pool.client, name or "default")
        if not any(one.code == "redis" and one.level == "critical" for one in found):
            found += _check_pools(pool, name)
    finally:
        pool.close()
    return found


def _check_server(client: Any, pool: str) -> Iterator[Condition]:
    """Check the server of *client*, the rights on the keys of *pool*, and the tags."""
    key = pool_keys(pool)[0]
    try:
        with translated(address(client)):
            client.ping()
    except StoreUnavailable as failure:
        # a user who may not run PING is connected nevertheless
        if failure.code != "no-permission":
            yield critical(str(failure), f"nothing else was checked. Meanwhile, {DO_NOT_RESTART}").of("redis")
            return
    client = server_of(client, key)
    yield from checks.check_server(client, key)
    yield check_rights(client, pool).of("rights")
    yield from attempted("tags", lambda: [check_tags(client)], advice="allow +scan, or ask: snowredis numbers show TAG")


def _check_pools(any_pool: PoolMonitor, name: str | None) -> Iterator[Condition]:
    """Check the pool *name*, or all pools; *any_pool* gives access to the server."""
    names = [] if name is None else [name]

    def find() -> Iterator[Condition]:
        names.extend(any_pool.pools())
        if not names:
            yield ok("there is none yet")
        if len(names) > MAX_POOLS:
            yield unknown(f"{len(names) - MAX_POOLS:,} more pools were not checked", "name one with --pool")

    if name is None:
        yield from attempted("pools", find, advice="name the pool with --pool")
    for each in names[:MAX_POOLS]:
        yield from check_pool(any_pool.server, each)
