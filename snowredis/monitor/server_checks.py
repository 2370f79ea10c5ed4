"""What goes wrong with Redis servers: settings, replication, rights, clock, latency. Reads only."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from snowredis.errors import ServerUnidentified, SnowredisError, StoreRefused, StoreUnavailable
from snowredis.lease.clients import address, is_cluster
from snowredis.lease.inspect import server_now_ms, setting_ms, text_of
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import SCRIPTS, pool_keys, read_lua
from snowredis.monitor.findings import Finding, error, ok, unknown, warning

OLDEST_REDIS = (6, 2)
# what a client waits for an answer at most is 1000 ms; a renewal then counts as failed
SLOW_MS, TOO_SLOW_MS = 20.0, 300.0
ROUNDS = 15
# what to do with a server that durability="detect" refuses
UNIDENTIFIED = (
    "allow +info if that is what is missing; else make pools with --durability assured if this Redis never loses an "
    "acknowledged write, or with --durability none, where every new worker waits"
)
# as long as a claim: the same commands but for the writes
_PROBE = (
    "redis.call('TIME') redis.pcall('INFO','server') return redis.call('HMGET',KEYS[1],'signature','version')"
)
_IDENTITY = "local id, reason = identity() return { id or '', reason or '' }"


def look_at_server(client: Any, name: str) -> Iterator[Finding]:
    """All checks of the server of *client*; *name* is the pool whose keys are looked for."""
    where = address(client)
    try:
        with translated(where):
            client.ping()
    except StoreUnavailable as failure:
        yield error(
            "redis",
            str(failure),
            "check the address, the password and the network; nothing else was looked at",
        )
        return
    if is_cluster(client):
        # what follows is of one server
        client = client.get_redis_connection(client.get_node_from_key(pool_keys(name)[0]))
    try:
        with translated(where):
            info = {text_of(key): value for key, value in client.info().items()}
    except SnowredisError as failure:
        yield unknown(
            "redis",
            f"{where} answers, but INFO is refused: {failure}",
            "allow +info; generators need it, too",
        )
        info = {}
    else:
        yield from _of_info(where, info, client)
    checks: Sequence[tuple[str, Callable[[], Finding]]] = (
        ("clock", lambda: _clock(client, name)),
        ("latency", lambda: _latency(client, name)),
        ("rights", lambda: _rights(client, name)),
        ("identity", lambda: _identity(client, name)),
    )
    for check, look in checks:
        try:
            with translated(where):
                yield look()
        except SnowredisError as failure:
            yield unknown(check, str(failure))


def _of_info(where: str, info: dict[str, Any], client: Any) -> Iterator[Finding]:
    yield _version(where, info)
    yield _eviction(info)
    yield _persistence(info, client)
    yield _replication(info, client)


def _version(where: str, info: dict[str, Any]) -> Finding:
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version", info.get("redis_version", "?")))
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST_REDIS and numbers:
        return error("redis", f"{kind} {version} at {where} is too old", "6.2 is the oldest that works")
    return ok("redis", f"{kind} {version} answers at {where}")


def _eviction(info: dict[str, Any]) -> Finding:
    policy, limit, used = (
        str(info.get("maxmemory_policy", "")),
        int(info.get("maxmemory", 0)),
        info.get("used_memory", 0),
    )
    if policy.startswith("allkeys-"):
        text = f"maxmemory-policy is {policy}: Redis deletes pools when memory runs short"
        advice = (
            "CONFIG SET maxmemory-policy noeviction, or a volatile-* policy: a pool's keys have no time-out"
        )
        # without a limit nothing is evicted, until somebody sets one
        return (
            error("eviction", text, advice)
            if limit
            else warning("eviction", f"{text}; now no limit is set", advice)
        )
    if limit and int(used) > 0.9 * limit:
        return warning(
            "eviction",
            f"{int(used) / limit:.0%} of maxmemory is used; when it is full, claims and renewals are refused",
            "raise maxmemory, or move what fills it elsewhere",
        )
    return ok(
        "eviction", f"maxmemory-policy {policy or '?'}, {'no limit' if not limit else f'{limit:,} bytes'}"
    )


def _persistence(info: dict[str, Any], client: Any) -> Finding:
    what = "persistence"
    for field in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"):
        if info.get(field, "ok") != "ok":
            return error(
                what,
                f"{field} is {info[field]}",
                "Redis refuses writes in this state: look at its log and its disk",
            )
    if info.get("loading"):
        return warning(what, "Redis is loading its data", "wait until it is done")
    aof, saves = bool(info.get("aof_enabled")), _config(client, "save")
    if aof:
        return ok(what, f"append-only file{' and snapshots' if saves else ''}")
    if saves is None:
        return unknown(what, "no append-only file; CONFIG GET save is refused, so snapshots are not known")
    if not saves:
        return warning(
            what,
            "neither an append-only file nor snapshots: a restart forgets every pool",
            "no id is repeated by that, but after it each pool's new workers wait for its floor (35 s at "
            "the defaults) and "
            "`whois` knows nothing of before: set appendonly yes",
        )
    return ok(what, f"snapshots ({saves}); after a crash, new workers wait for the floor")


def _replication(info: dict[str, Any], client: Any) -> Finding:
    what, replicas = "replication", int(info.get("connected_slaves", 0))
    if info.get("role") != "master":
        return error(
            what, "this is a replica, which takes no claims", "use the master's address, or sentinel://…"
        )
    if info.get("cluster_enabled") and not int(info.get("cluster_size", 1) or 1):
        return warning(what, "the Cluster has no slots yet", "see CLUSTER INFO")
    if not replicas:
        return ok(what, "a master without replicas")
    needed = _config(client, "min-replicas-to-write")
    if needed is None:
        return unknown(what, f"{replicas} replicas; CONFIG GET min-replicas-to-write is refused")
    if needed == "0":
        return warning(
            what,
            f"{replicas} replicas, and min-replicas-to-write is 0: a deposed master goes on taking claims",
            'connect(min_replicas="all"), or CONFIG SET min-replicas-to-write 1; and failover_slack as long as a '
            "master may go on answering",
        )
    return ok(what, f"{replicas} replicas, min-replicas-to-write {needed}")


def _config(client: Any, name: str) -> str | None:
    """A setting of the server; None where that is refused."""
    try:
        with translated(address(client)):
            told = {text_of(key): text_of(value) for key, value in client.config_get(name).items()}
    except SnowredisError:
        return None
    return told.get(name)


def _clock(client: Any, name: str) -> Finding:
    key = pool_keys(name)[0]
    # how long the quickest round took, and what it showed
    best = (math.inf, 0.0)
    for _ in range(ROUNDS):
        before_ms = time.time_ns() / 1e6
        redis_ms = float(server_now_ms(client, key))
        took_ms = time.time_ns() / 1e6 - before_ms
        # Redis read its clock about half-way
        best = min(best, (took_ms, before_ms + took_ms / 2 - redis_ms))
    offset_ms = best[1]
    lead_ms = setting_ms(text_of(client.hget(key, "signature") or b""), "max_clock_lead_ms") or 2_500
    text = f"this host's clock is {offset_ms:+.0f} ms against Redis'"
    if offset_ms > lead_ms:
        advice = "ids stay unique, but reservations get shorter, down to none: correct the clock"
        return error("clock", f"{text}, further ahead than max_clock_lead, {lead_ms} ms", advice)
    if abs(offset_ms) > min(lead_ms / 2, 500):
        return warning(
            "clock", text, "correct the clock: ids of different hosts do not sort by time otherwise"
        )
    return ok("clock", text)


def _latency(client: Any, name: str) -> Finding:
    def median_ms(ask: Callable[[], object]) -> float:
        times = []
        for _ in range(ROUNDS):
            started_s = time.perf_counter()
            ask()
            times.append((time.perf_counter() - started_s) * 1000)
        return statistics.median(times)

    ping_ms = median_ms(client.ping)
    try:
        with translated(address(client)):
            script_ms = median_ms(lambda: client.eval(_PROBE, 1, pool_keys(name)[0]))
    except SnowredisError:
        # read-only credentials
        script_ms = None
    text = f"PING {ping_ms:.2f} ms" + (f", a script {script_ms:.2f} ms" if script_ms is not None else "")
    slowest_ms = max(ping_ms, script_ms or 0.0)
    if slowest_ms > TOO_SLOW_MS:
        return error(
            "latency", f"{text} (medians)", "an answer that takes 1 s counts as none: use a nearer Redis"
        )
    if slowest_ms > SLOW_MS:
        return warning(
            "latency", f"{text} (medians)", "look at SLOWLOG and the network between here and Redis"
        )
    return ok("latency", f"{text} (medians)")


def missing_identity(client: Any, name: str) -> str:
    """Return why durability="detect" is refused by the server of pool *name*, or "" if it is not.

    Asks as the scripts do. Raises StoreUnavailable and its kinds, also where scripts may not be run at all.
    """
    with translated(address(client)):
        reply = client.eval(f"{read_lua('identity')}\n{_IDENTITY}", 1, pool_keys(name)[0])
    code = text_of(reply[1])
    return ServerUnidentified(address(client), code).reason if code else ""


def _identity(client: Any, name: str) -> Finding:
    what, missing = "identity", missing_identity(client, name)
    if missing:
        return warning(what, f"nothing tells this Redis from another server: {missing}", UNIDENTIFIED)
    return ok(what, "this Redis shows which server it is, so restarts and failovers are noticed")


def needed_commands() -> list[str]:
    """Every command that a generator sends or that its scripts call, in lower case."""
    called = {
        name.lower()
        for script in ("identity", "common", *SCRIPTS)
        if script != "delete"
        for name in re.findall(r"redis\.p?call\('(\w+)'", read_lua(script))
    }
    return sorted(called | {"eval", "evalsha"})


# ACL DRYRUN looks at how many arguments there are, too
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "eval": ("return 1", "1", "KEY"),
    "evalsha": ("0" * 40, "1", "KEY"),
    "time": (),
    "info": ("server",),
    "del": ("KEY",),
    "hget": ("KEY", "f"),
    "hmget": ("KEY", "f"),
    "hdel": ("KEY", "f"),
    "hexists": ("KEY", "f"),
    "hset": ("KEY", "f", "v"),
    "hincrby": ("KEY", "f", "1"),
    "hscan": ("KEY", "0"),
    "persist": ("KEY",),
    "zadd": ("KEY", "1", "m"),
    "zcard": ("KEY",),
    "zcount": ("KEY", "0", "1"),
    "zrange": ("KEY", "0", "0"),
    "zrangebyscore": ("KEY", "0", "1"),
    "zrem": ("KEY", "m"),
    "xadd": ("KEY", "*", "f", "v"),
}


def _rights(client: Any, name: str) -> Finding:
    key, what = pool_keys(name)[0], "rights"
    try:
        with translated(address(client)):
            user = text_of(client.acl_whoami())
            missing = [command for command in needed_commands() if not _may(client, user, command, key)]
    except SnowredisError:
        return _rights_by_trying(client)
    if missing:
        return warning(
            what,
            f"user {user} may not {', '.join(missing)} on pool {name}",
            "enough for looking; generators need the rules in docs/monitoring.md",
        )
    return ok(what, f"user {user} may do all that generators need")


def _may(client: Any, user: str, command: str, key: str) -> bool:
    arguments = [key if argument == "KEY" else argument for argument in _ARGUMENTS[command]]
    return text_of(client.execute_command("ACL", "DRYRUN", user, command, *arguments)) == "OK"


def _rights_by_trying(client: Any) -> Finding:
    """A script that is not there: permission is asked for first."""
    try:
        with translated(address(client)):
            client.evalsha("0" * 40, 0)
    except StoreRefused as refused:
        return warning(
            "rights",
            f"scripts may not be run: {refused}",
            "enough for looking; generators need the rules in docs/monitoring.md",
        )
    except StoreUnavailable:
        return unknown(
            "rights", "scripts may be run; ACL DRYRUN is refused or unknown, so the rest is not known"
        )
    return unknown("rights", "EVALSHA gave an answer that it should not give")
