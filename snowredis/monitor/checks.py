"""Checks of this host and of one Redis server.

Those of a server are functions that need the reply of INFO, in one table, and the check of its clock. They only read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from snowredis.errors import REFUSED, SnowredisError, StoreUnavailable, count
from snowredis.monitor.conditions import LEVELS, Condition
from snowredis.monitor.pool import stored_int
from snowredis.servers.clients import address
from snowredis.servers.runner import server_now_ms, translated
from snowredis.servers.scripts import WHY_UNIDENTIFIED, read_lua, text_of
from snowredis.signatures import fields_of
from snowredis.snowflake.crash.files import OFF, VARIABLE, RecordsOff, find_place, made_file, remove

# results of each level, from a text and an advice; ok: all is well, unknown: the check was not possible
ok, unknown, warning, critical = (partial(Condition, level) for level in LEVELS)


def not_checked(failure: SnowredisError, what: str = "") -> Condition:
    """Return the result of a check, of *what*, that *failure* made impossible: a command was refused, or Redis left."""
    reason = failure.reason if isinstance(failure, StoreUnavailable) and failure.code in REFUSED else str(failure)
    return unknown(f"{what}{' was ' if what else ''}not checked: {reason}")


def attempted(
    code: str, check: Callable[[], Iterable[Condition]], subject: str = "", advice: str = ""
) -> Iterator[Condition]:
    """Run a check, and return its results as conditions of *code*; also that it was not possible.

    Args:
        subject: what the check is about.
        advice: what to do if Redis refuses what the check needs.
    """
    try:
        for each in check():
            yield each.of(code, subject)
    except SnowredisError as failure:
        yield not_checked(failure).of(code, subject, advice=advice if failure.code in REFUSED else "")


def check_crash_records() -> Condition:
    """Check whether processes of this user make crash records on this host: make one. Blocks for a few ms."""
    try:
        place = find_place(make=True)
        path = os.path.join(place.top, f"try.{place.own.namespace}", f"{place.own.pid}.{os.urandom(6).hex()}")
        with made_file(path):
            remove(path)
    except (RecordsOff, OSError) as error:
        if os.environ.get(VARIABLE) == OFF:
            return ok(f"off, by {VARIABLE}: a kill leaves the lease until its ttl has passed")
        why = error if isinstance(error, RecordsOff) else RecordsOff.failed(error)
        return warning(
            f"processes of this user make no crash records, so a kill leaves the lease until its ttl has passed: {why}",
            f"make that directory usable, or name one of your own with {VARIABLE} ({OFF}: none are wanted)",
        )
    return ok("processes of this user can make them, so worker ids of killed ones are released at once")


# --- one server ------------------------------------------------------------------------------------

OLDEST_REDIS = (6, 2)
# advice for a server that durability="detect" refuses
UNIDENTIFIED = (
    "allow +info if it is missing; otherwise create pools with --durability assured if this Redis never loses an "
    "acknowledged write, or with --durability none, where every new worker waits"
)
_IDENTITY = "local id, reason = identity() return { id or '', reason or '' }"


def check_server(client: Any, key: str) -> Iterator[Condition]:
    """Run all checks of the server of *client*, which can be reached.

    Args:
        client: of a single server.
        key: of the pool or the tag that commands are tried on.
    """
    where = address(client)
    try:
        with translated(where):
            info = {text_of(key): value for key, value in client.info().items()}
    except SnowredisError as failure:
        advice = "allow +info; generators need it too, unless the durability of their pool is not detect"
        yield not_checked(failure, f"{where} answers; its version").of("redis", advice=advice)
    else:
        yield from (run(info, client).of(check) for check, run in _INFO_CHECKS.items())
    yield from attempted("clock", lambda: [_clock(client, key)])


def _version(info: dict[str, Any], client: Any) -> Condition:
    where, kind = address(client), "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version", info.get("redis_version", "?")))
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST_REDIS and numbers:
        return critical(f"{kind} {version} at {where} is too old", "6.2 is the oldest supported version")
    return ok(f"{kind} {version} answers at {where}")


def _eviction(info: dict[str, Any], _client: Any) -> Condition:
    policy, limit = str(info.get("maxmemory_policy", "")), int(info.get("maxmemory", 0))
    used_share = int(info.get("used_memory", 0)) / limit if limit else 0.0
    if policy.startswith("allkeys-"):
        text = f"maxmemory-policy is {policy}: Redis deletes pools when memory runs short"
        advice = "CONFIG SET maxmemory-policy noeviction, or a volatile-* policy: the keys of a pool never expire"
        return critical(text, advice) if limit else warning(f"{text}; now no limit is set", advice)
    if used_share > 0.9:
        return warning(
            f"{used_share:.0%} of maxmemory is used; when it is full, claims and renewals are refused",
            "raise maxmemory, or move other data elsewhere",
        )
    return ok(f"maxmemory-policy {policy or '?'}, {'no limit' if not limit else f'{limit:,} bytes'}")


def _persistence(info: dict[str, Any], client: Any) -> Condition:
    for field in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"):
        if info.get(field, "ok") != "ok":
            advice = "Redis refuses writes in this state: look at its log and its disk"
            return critical(f"{field} is {info[field]}", advice)
    saves = _config(client, "save")
    if info.get("aof_enabled"):
        return ok(f"append-only file{' and snapshots' if saves else ''}")
    if saves is None:
        return unknown("no append-only file; CONFIG GET save is refused, so snapshots are not known")
    if not saves:
        return warning(
            "neither an append-only file nor snapshots: a restart loses every pool",
            "ids stay unique, but afterwards new workers wait for the floor of their pool (35 s at the defaults), and "
            "`whois` knows nothing of the time before: set appendonly yes",
        )
    return ok(f"snapshots ({saves}); after a crash, new workers wait for the floor")


def _replication(info: dict[str, Any], client: Any) -> Condition:
    replicas = int(info.get("connected_slaves", 0))
    if info.get("role") != "master":
        return critical("this is a replica, which takes no claims", "use the master's address, or sentinel://…")
    if not replicas:
        return ok("a master without replicas")
    needed, replicas_text = _config(client, "min-replicas-to-write"), count(replicas, "replica")
    if needed is None:
        return unknown(f"{replicas_text}; CONFIG GET min-replicas-to-write is refused")
    if needed == "0":
        return warning(
            f"{replicas_text}, and min-replicas-to-write is 0: a deposed master goes on taking claims",
            'connect(min_replicas="all"), or CONFIG SET min-replicas-to-write 1; and failover_slack as long as a '
            "master may go on answering",
        )
    return ok(f"{replicas_text}, min-replicas-to-write {needed}")


def _config(client: Any, name: str) -> str | None:
    """Return a setting of the server; None if CONFIG GET is refused."""
    try:
        with translated(address(client)):
            settings = {text_of(key): text_of(value) for key, value in client.config_get(name).items()}
    except SnowredisError:
        return None
    return settings.get(name)


def _clock(client: Any, key: str) -> Condition:
    with translated(address(client)):
        before_ms = time.time_ns() / 1e6
        redis_ms = server_now_ms(client, key)
        # Redis read its clock about halfway
        offset_ms = (before_ms + time.time_ns() / 1e6) / 2 - redis_ms
        stored = fields_of(text_of(client.hget(key, "signature") or b""))
    lead_ms = stored_int(stored.get("max_clock_lead_ms", "")) or 2_500
    text = f"this host's clock is {offset_ms:+.0f} ms against Redis'"
    if offset_ms > lead_ms:
        advice = "ids stay unique, but reservations get shorter, down to zero: correct the clock"
        return critical(f"{text}, further ahead than max_clock_lead, {lead_ms} ms", advice)
    if abs(offset_ms) > min(lead_ms / 2, 500):
        return warning(text, "correct the clock: ids of different hosts do not sort by time otherwise")
    return ok(text)


def missing_identity(client: Any, key: str) -> str:
    """Return why the server that has *key* is refused by durability="detect"; "" if it is not, or is a replica.

    Runs the code that the scripts run. Raises StoreUnavailable and its kinds, also if scripts are not allowed.
    """
    with translated(address(client)):
        reply = client.eval(f"{read_lua('identity')}\n{_IDENTITY}", 1, key)
    code = text_of(reply[1])
    return WHY_UNIDENTIFIED.get(code, code) if code != "replica" else ""


# checks of what INFO says
_INFO_CHECKS: Mapping[str, Callable[[dict[str, Any], Any], Condition]] = {
    "redis": _version,
    "eviction": _eviction,
    "persistence": _persistence,
    "replication": _replication,
}
