"""`pool`: make and delete pools. What it deletes, it asks about first. Showing them is in pool_show.py."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from snowredis.cli.exits import CommandError, ExitCode
from snowredis.cli.options import (
    Commands,
    Parser,
    add_command,
    add_pool_settings,
    add_redis,
    open_known_pool,
    open_pool,
    settings,
)
from snowredis.cli.output import pairs, write
from snowredis.cli.pool_show import DURATIONS, settings_rows, show

if TYPE_CHECKING:
    from snowredis.lease.inspect import PoolInfo
    from snowredis.monitor.pool import WorkerPool


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "pool",
        summary="make, show and delete pools",
        examples=[
            ("snowredis pool create orders --ttl 30", "before the first start of a fleet"),
            ("snowredis pool show", "all pools of a Redis"),
            ("snowredis pool delete orders", "asks first"),
        ],
    )
    words = parser.add_subparsers(metavar="WHAT", title="what", parser_class=Parser)
    _add_create(words)
    _add_show(words)
    _add_delete(words)


def _add_create(words: Commands[Parser]) -> None:
    parser = add_command(
        words,
        "create",
        summary="make a pool that is really new, so that its first worker need not wait",
        about=(
            "Without it the first worker waits for ttl + max-clock-lead + redis-skew, since Redis may have "
            "forgotten a pool. Do it only if no ids were made in a pool of this name and layout for that long. "
            "All processes of the pool must be given the same settings."
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


def _add_show(words: Commands[Parser]) -> None:
    parser = add_command(
        words,
        "show",
        summary="show a pool, or all of them",
        examples=[
            ("snowredis pool show", "one line for each pool of this Redis"),
            ("snowredis pool show orders", "settings, use and history of one"),
            ("snowredis pool show orders --json", "for programs"),
        ],
        run=show,
    )
    parser.add_argument("pool", nargs="?", metavar="NAME")
    add_redis(parser, pool=False)
    parser.add_argument("--json", action="store_true", help="an object, or a list of all pools")


def _add_delete(words: Commands[Parser]) -> None:
    parser = add_command(
        words,
        "delete",
        summary="remove a pool and all that is known of it",
        about=(
            "No id is repeated by that: a pool of this name that comes back by itself makes its first worker "
            "wait. Living workers lose their leases at the next heartbeat."
        ),
        examples=[
            ("snowredis pool delete orders", "asks first"),
            ("snowredis pool delete orders --yes", "does not ask"),
            ("snowredis pool delete orders --yes --force", "even if workers are alive"),
        ],
        run=_delete,
    )
    parser.add_argument("pool", metavar="NAME")
    add_redis(parser, pool=False)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="also if workers are alive")


# --- create ----------------------------------------------------------------------------------------


def _create(args: argparse.Namespace) -> int:
    from snowredis.api import default_slack_ms
    from snowredis.core.presets import resolve_layout
    from snowredis.lease.model import PoolConfig

    url, options = settings(args)
    constants = {f"{name}_ms": round(options[name] * 1000) for name in DURATIONS if name in options}
    constants.setdefault("failover_slack_ms", default_slack_ms(url))
    config = PoolConfig(
        name=options["pool"],
        layout=resolve_layout(options.get("layout")),
        datacenter=options.get("datacenter", 0),
        **constants,
    )
    with open_pool(url, config.name) as pool:
        made = pool.create(config, time.time_ns() // 1_000_000)
        info = pool.info()
        what = "was made" if made else "is there already, with the same settings; nothing was changed"
        print(f"pool {config.name} at {pool.where} {what}")
    write(pairs(settings_rows(info)))
    return ExitCode.OK


# --- delete ----------------------------------------------------------------------------------------


def _delete(args: argparse.Namespace) -> int:
    url, _ = settings(args)
    with open_known_pool(url, args.pool) as pool:
        info = pool.info()
        if not args.yes and (info.used == 0 or args.force):
            if not sys.stdin.isatty():
                raise CommandError(
                    ExitCode.USAGE,
                    f"nobody is at a terminal to be asked whether to delete pool {args.pool}; nothing was deleted. "
                    "Say --yes if you mean it.",
                )
            if not _agreed(pool, info):
                print("nothing was deleted")
                return ExitCode.ERROR
        alive = pool.delete(force=args.force)
    lost = f"; {alive:,} living workers lose their leases at their next heartbeat" if alive else ""
    print(f"pool {args.pool} at {pool.where} was deleted{lost}")
    return ExitCode.OK


def _agreed(pool: WorkerPool, info: PoolInfo) -> bool:
    use = f"{info.used:,} worker ids leased, {info.claims:,} claims so far"
    try:
        return input(f"delete pool {info.name} at {pool.where} ({use})? [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    except EOFError:
        print()
        return False
