"""`pool create`: create a pool that is really new."""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import TYPE_CHECKING, Any

from snowredis.cli.commands.pool_show import settings_rows
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import (
    Parser,
    add_pool_name,
    add_redis,
    add_settings,
    needed_pool_name,
    open_pool,
    settings,
)
from snowredis.cli.output import duration, pairs, wrapped, write
from snowredis.settings import SETTINGS

if TYPE_CHECKING:
    from snowredis.snowflake.replies import CreateReply

SUMMARY = "create a pool that is really new, so that its first worker does not wait"
ABOUT = """Without it the first worker waits for ttl + max-clock-lead + redis-skew, since Redis may have lost a pool
of this name. Run it only if no ids were made in a pool of this name and layout for that long. All processes of the
pool need the same settings."""
EXAMPLES = [
    ("snowredis pool create orders", "the defaults"),
    ("snowredis pool create game --layout game --ttl 60", "another layout"),
    ("snowredis pool create eu --layout twitter --datacenter 3", "datacenter bits"),
    ("snowredis pool create s7 --layout twitter --datacenter auto", "a shard"),
    ("snowredis pool create ha --failover-slack 15 --ttl 60", "with failovers"),
]


def add_arguments(parser: Parser) -> None:
    add_pool_name(parser)
    add_redis(parser, pool=False)
    add_settings(parser, *(name for name, setting in SETTINGS.items() if setting.of_pool), "registry_url")


def run(args: argparse.Namespace) -> int:
    from snowredis.connection import check_end
    from snowredis.core.presets import resolve_layout
    from snowredis.snowflake.replies import Created

    needed_pool_name(args)
    url, options = settings(args)
    options |= {"min_replicas": 0}
    check_end(resolve_layout(options.get("layout")), _now_ms())
    in_registry = options.get("registry") is not None or options.get("datacenter") == "auto"
    reply = (_register if in_registry else _create)(url, options)
    created = isinstance(reply, Created)
    wait_ms = 0 if reply is None else reply.floor_ms - reply.redis_ms
    with open_pool(args) as pool:
        info = pool.info()
        result = "was created" if created else "already exists, with the same settings; nothing was changed"
        print(f"pool {pool.name} at {pool.where} {result}")
    if wait_ms > 0:
        reason = (
            "a pool of this name was deleted, and its workers may make ids until then"
            if created
            else "Redis did not know the pool, or was restarted, when a worker or this command asked"
        )
        write(wrapped([], f"new workers wait for {duration(wait_ms)}: {reason}"))
    write(pairs(settings_rows(info), wrap=True))
    return ExitCode.OK


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _create(url: Any, options: dict[str, Any]) -> CreateReply:
    from snowredis.snowflake.open import open_store_from_settings

    with contextlib.closing(open_store_from_settings(url, options)) as store:
        return store.create(_now_ms())


def _register(url: Any, options: dict[str, Any]) -> CreateReply | None:
    """Create the pool with a number of its registry; return None if it existed and the number was confirmed."""
    from snowredis.snowflake.registered_store import open_registered, owner_of
    from snowredis.snowflake.registration import register

    config, servers, registry = open_registered(url, options)
    wanted = options.get("datacenter", "auto")
    with contextlib.closing(servers), contextlib.closing(registry):
        registered = register(
            config,
            servers,
            registry,
            wanted=None if wanted == "auto" else wanted,
            owner=owner_of(servers),
            now_ms=_now_ms,
        )
        number, where = registered.config.datacenter, registry.where
        print(f"pool {config.name} has the number {number} of registry {registry.name} at {where}")
    return registered.created
