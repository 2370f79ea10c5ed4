"""`pool`: make and delete pools. What it deletes, it asks about first. Showing them is in pool_show.py."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode
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
from snowredis.cli.output import duration, pairs, printable, write
from snowredis.cli.pool_show import settings_rows, show

if TYPE_CHECKING:
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
    add_pool_settings(parser)


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
            "No id is repeated by that: what stays is the time up to which ids may still be made, and new workers "
            "of a pool of this name wait for it, whatever its settings. It works on a pool that is broken, too.\n\n"
            "With --force: living workers bring the pool back at their next heartbeat, and keep their worker ids; "
            "after a pool with other settings was made in its place, they stop making ids instead. So stop them "
            "first, or create the pool with its new settings at once."
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
    from snowredis.lease.open import open_store_from_settings
    from snowredis.lease.replies import Created

    url, options = settings(args)
    with contextlib.closing(open_store_from_settings(url, options | {"min_replicas": 0})) as store:
        created = isinstance(store.create(time.time_ns() // 1_000_000), Created)
    with open_pool(url, options["pool"]) as pool:
        info = pool.info()
        what = "was made" if created else "is there already, with the same settings; nothing was changed"
        print(f"pool {pool.name} at {pool.where} {what}")
    if created and info.floor_ms > info.now_ms:
        print(
            f"new workers wait for {duration(info.floor_ms - info.now_ms)}: a pool of this name was deleted, and its "
            "workers may make ids until then"
        )
    write(pairs(settings_rows(info)))
    return ExitCode.OK


# --- delete ----------------------------------------------------------------------------------------


def _delete(args: argparse.Namespace) -> int:
    url, _ = settings(args)
    with open_known_pool(url, args.pool) as pool:
        use = _use(pool)
        # of which nothing is known there is nothing to ask
        if use is not None and not args.yes and (not use.alive or args.force):
            if not sys.stdin.isatty():
                raise CommandError(
                    ExitCode.USAGE,
                    f"nobody is at a terminal to be asked whether to delete pool {args.pool}; nothing was deleted. "
                    "Say --yes if you mean it.",
                )
            if not _agreed(pool, use):
                print("nothing was deleted")
                return ExitCode.ERROR
        done = pool.delete(force=args.force)
    print(f"pool {args.pool} at {pool.where} was deleted")
    if done.alive:
        print(
            f"{done.alive:,} workers were alive: each brings the pool back at its next heartbeat and keeps its worker "
            "id, unless a pool of this name with other settings was made before"
        )
    if done.wait_ms:
        print(
            f"new workers of a pool of this name wait for {duration(done.wait_ms)}, until all its ids are past"
        )
    if done.guessed:
        print(
            "its settings could not be read: that wait rests on the defaults and on what its records showed; if its "
            "ttl was longer than 30 s, wait for that long before you make it again",
            file=sys.stderr,
        )
    return ExitCode.OK


@dataclass(frozen=True)
class _Use:
    """How much a pool is in use, for whoever is asked whether to delete it."""

    alive: int
    text: str


def _use(pool: WorkerPool) -> _Use | None:
    """Return None if the pool is not there, or not so much of it that it could be in use."""
    from snowredis.errors import PoolNotFound, StoreUnavailable

    try:
        info = pool.info()
    except PoolNotFound:
        return None
    except StoreUnavailable as error:
        # one that is broken can be deleted all the same; one that does not answer fails once more
        alive = len(pool.workers())
        return _Use(alive, f"{alive:,} worker ids leased; {printable(error.reason, 200)}")
    return _Use(info.used, f"{info.used:,} worker ids leased, {info.claims:,} claims so far")


def _agreed(pool: WorkerPool, use: _Use) -> bool:
    try:
        return input(f"delete pool {pool.name} at {pool.where} ({use.text})? [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    except EOFError:
        print()
        return False
