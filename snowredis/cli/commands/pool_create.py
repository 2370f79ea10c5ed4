"""`pool create`: create a pool that is really new."""

from __future__ import annotations

import argparse
import contextlib
import time

from snowredis.cli.commands.pool_show import settings_rows
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import (
    Commands,
    Parser,
    add_command,
    add_pool_settings,
    add_redis,
    open_pool,
    settings,
)
from snowredis.cli.output import duration, pairs, write


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "create",
        summary="create a pool that is really new, so that its first worker does not wait",
        about=(
            "Without it the first worker waits for ttl + max-clock-lead + redis-skew, since Redis may have lost a pool "
            "of this name. Run it only if no ids were made in a pool of this name and layout for that long. All "
            "processes of the pool need the same settings."
        ),
        examples=[
            ("snowredis pool create orders", "the defaults"),
            ("snowredis pool create game --layout game --ttl 60", "another layout"),
            ("snowredis pool create eu --layout twitter --datacenter 3", "datacenter bits"),
            ("snowredis pool create ha --failover-slack 15 --ttl 60", "with failovers"),
        ],
        run=_create,
    )
    parser.add_argument("pool", metavar="NAME")
    add_redis(parser, pool=False)
    add_pool_settings(parser)


def _create(args: argparse.Namespace) -> int:
    from snowredis.lease.open import open_store_from_settings
    from snowredis.lease.replies import Created

    url, options = settings(args)
    with contextlib.closing(open_store_from_settings(url, options | {"min_replicas": 0})) as store:
        created = isinstance(store.create(time.time_ns() // 1_000_000), Created)
    with open_pool(url, options["pool"]) as pool:
        info = pool.info()
        result = "was created" if created else "already exists, with the same settings; nothing was changed"
        print(f"pool {pool.name} at {pool.where} {result}")
    if created and info.floor_ms > info.now_ms:
        print(
            f"new workers wait for {duration(info.floor_ms - info.now_ms)}: a pool of this name was deleted, and "
            "its workers may make ids until then"
        )
    write(pairs(settings_rows(info)))
    return ExitCode.OK
