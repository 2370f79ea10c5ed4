"""`pool delete`: delete a pool, after a question."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import (
    Parser,
    add_pool_name,
    add_redis,
    add_settings,
    needed_pool_name,
    open_known_pool,
)
from snowredis.cli.output import duration, printable
from snowredis.cli.registry_access import open_named
from snowredis.errors import PoolNotFound, StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.worker_pool import WorkerPool

SUMMARY = "delete a pool and its history"
ABOUT = """No id is repeated: Redis keeps the time up to which workers may still make ids, and new workers of a pool
of this name wait for it, whatever its settings. A broken pool can be deleted, too.

With --force: living workers create the pool again at their next heartbeat and keep their worker ids; if a pool with
other settings was created in its place, they stop making ids. So stop them first, or create the pool with its new
settings at once."""
EXAMPLES = [
    ("snowredis pool delete orders", "asks first"),
    ("snowredis pool delete orders --yes", "does not ask"),
    ("snowredis pool delete orders --yes --force", "even if workers are alive"),
]


def add_arguments(parser: Parser) -> None:
    add_pool_name(parser)
    add_redis(parser, pool=False)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="also if workers are alive")
    add_settings(parser, "registry_url")


def run(args: argparse.Namespace) -> int:
    needed_pool_name(args)
    with open_known_pool(args) as pool:
        use = _use(pool)
        # without information about the pool there is nothing to ask
        if use is not None and not args.yes and (not use.alive or args.force):
            if not sys.stdin.isatty():
                raise CommandError(
                    ExitCode.USAGE,
                    f"standard input is not a terminal, so nobody can confirm the deletion of pool "
                    f"{args.pool}; nothing was deleted. Confirm with --yes.",
                )
            if not _agreed(pool, use):
                print("nothing was deleted")
                return ExitCode.ERROR
        number = _number_of(pool)
        deletion = pool.delete(force=args.force)
    print(f"pool {args.pool} at {pool.where} was deleted")
    if number is not None:
        _retire(args, *number)
    if deletion.alive:
        print(
            f"{deletion.alive:,} workers were alive: each creates the pool again at its next heartbeat and keeps its "
            "worker id, unless a pool of this name with other settings is created first"
        )
    if deletion.wait_ms:
        print(
            f"new workers of a pool of this name wait for {duration(deletion.wait_ms)}, so as to repeat none of its ids"
        )
    if deletion.guessed:
        print(
            "its settings could not be read: the wait is an estimate from the defaults and from its records; if "
            "its ttl was longer than 30 s, wait for that long before you create it again",
            file=sys.stderr,
        )
    return ExitCode.OK


def _number_of(pool: WorkerPool) -> tuple[str, str, int] | None:
    """Return registry, registration and shard number of the pool; None if it has none, or is broken."""
    from snowredis.snowflake.registry import parse_registration

    try:
        stored = pool.info().settings
    except (PoolNotFound, StoreUnavailable):
        return None
    registry, registration = parse_registration(stored.get("registry", ""))
    return (registry, registration, int(stored["datacenter"])) if registration else None


def _retire(args: argparse.Namespace, registry: str, registration: str, number: int) -> None:
    """Tell the registry that the pool was deleted. The number stays its own in any case."""
    kept = f"its number {number} stays its own: registry {registry} gives it to no other pool"
    try:
        with open_named(args, name=registry) as opened:
            opened.retire(number, registration)
    except StoreUnavailable as error:
        print(f"{kept}. The registry was not told: {printable(str(error), 300)}", file=sys.stderr)
    else:
        print(kept)


@dataclass(frozen=True)
class _Use:
    """Use of a pool, for the question whether to delete it."""

    alive: int
    text: str


def _use(pool: WorkerPool) -> _Use | None:
    """Return how much the pool is in use; None if it does not exist, or lacks the parts to be in use."""
    try:
        info = pool.info()
    except PoolNotFound:
        return None
    except StoreUnavailable as error:
        # a broken pool can be deleted; if Redis does not answer, the next line fails, too
        alive = len(pool.workers())
        return _Use(alive, f"{alive:,} worker ids leased; {printable(error.reason, 200)}")
    return _Use(info.used, f"{info.used:,} worker ids leased, {info.claims:,} claims so far")


def _agreed(pool: WorkerPool, use: _Use) -> bool:
    """Ask at the terminal whether to delete the pool."""
    try:
        return input(f"delete pool {pool.name} at {pool.where} ({use.text})? [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    except EOFError:
        print()
        return False
