"""`pool create`: create a pool that is really new."""

from __future__ import annotations

import argparse
import time

from snowredis.cli.commands.pool_show import DURATIONS, settings_rows
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
    add_pool_settings(parser, all_of_them=True)


def _create(args: argparse.Namespace) -> int:
    from snowredis.connection import default_slack_ms
    from snowredis.core.presets import resolve_layout
    from snowredis.lease.model import PoolConfig

    url, options = settings(args)
    constants = {f"{name}_ms": round(options[name] * 1000) for name in DURATIONS if name in options}
    constants.setdefault("failover_slack_ms", default_slack_ms(url))
    others = {
        name: options[name] for name in ("datacenter", "durability", "guard_rollbacks") if name in options
    }
    config = PoolConfig(
        name=options["pool"], layout=resolve_layout(options.get("layout")), **constants, **others
    )
    with open_pool(url, config.name) as pool:
        created = pool.create(config, time.time_ns() // 1_000_000)
        info = pool.info()
        result = "was created" if created else "already exists, with the same settings; nothing was changed"
        print(f"pool {config.name} at {pool.where} {result}")
    if created and info.floor_ms > info.now_ms:
        print(
            f"new workers wait for {duration(info.floor_ms - info.now_ms)}: a pool of this name was deleted, and "
            "its workers may make ids until then"
        )
    write(pairs(settings_rows(info)))
    return ExitCode.OK
