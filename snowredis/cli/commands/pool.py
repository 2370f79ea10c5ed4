"""`pool`: the commands that create, show, change and delete pools. `pool show` is in pool_show.py."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snowredis.cli.commands import pool_show
from snowredis.cli.commands.pool_show import settings_rows
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import (
    Parser,
    Subcommand,
    add_commands,
    add_pool_name,
    add_redis,
    add_settings,
    needed_pool_name,
    open_known_pool,
    open_pool,
    print_help,
    seconds,
    settings,
)
from snowredis.cli.output import duration, pairs, printable, time_of, wrapped, write
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.settings import SETTINGS

if TYPE_CHECKING:
    from snowredis.monitor.worker_pool import WorkerPool
    from snowredis.snowflake.replies import CreateReply


def _add_create_arguments(parser: Parser) -> None:
    add_pool_name(parser)
    add_redis(parser, pool=False)
    add_settings(parser, *(name for name, setting in SETTINGS.items() if setting.of_pool), "registry_url")


def _create(args: argparse.Namespace) -> int:
    from snowredis.connection import check_end
    from snowredis.core.presets import resolve_layout
    from snowredis.snowflake.open import has_registry
    from snowredis.snowflake.replies import Created

    needed_pool_name(args)
    url, options = settings(args)
    options |= {"min_replicas": 0}
    check_end(resolve_layout(options.get("layout")), _now_ms())
    reply = (_register if has_registry(options) else _create_alone)(url, options)
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


def _create_alone(url: Any, options: dict[str, Any]) -> CreateReply:
    from snowredis.snowflake.open import open_store_from_settings

    with contextlib.closing(open_store_from_settings(url, options)) as store:
        return store.create(_now_ms())


def _register(url: Any, options: dict[str, Any]) -> CreateReply | None:
    """Create the pool with a number of its registry; return None if it existed and the number was confirmed."""
    from snowredis.snowflake.registration import open_registered

    with contextlib.closing(open_registered(url, options)) as registered:
        created = registered.register(_now_ms)
        config, registry = registered.config, registered.registry
        print(
            f"pool {config.name} has the number {config.datacenter} of registry {registry.name} at {registry.where}"
        )
    return created


_CREATE = Subcommand(
    "create",
    "create a pool that is really new, so that its first worker does not wait",
    """Without it the first worker waits for ttl + max-clock-lead + redis-skew, since Redis may have lost a pool
of this name. Run it only if no ids were made in a pool of this name and layout for that long. All processes of the
pool need the same settings.""",
    [
        ("snowredis pool create orders", "the defaults"),
        ("snowredis pool create game --layout game --ttl 60", "another layout"),
        ("snowredis pool create eu --layout twitter --datacenter 3", "datacenter bits"),
        ("snowredis pool create s7 --layout twitter --datacenter auto", "a shard"),
        ("snowredis pool create ha --failover-slack 15 --ttl 60", "with failovers"),
    ],
    _add_create_arguments,
    _create,
)


def _add_change_layout_arguments(parser: Parser) -> None:
    parser.add_argument("pool", metavar="NAME")
    parser.add_argument("new_layout", nargs="?", metavar="NEW", help="a preset's name, or a spec")
    add_redis(parser, pool=False)
    text = "when, in seconds from now (default: 10)"
    parser.add_argument("--in", dest="delay_s", type=seconds, default=10.0, metavar="S", help=text)
    parser.add_argument("--undo", action="store_true", help="undo a planned change")
    parser.add_argument(
        "--force", action="store_true", help="also if outage lanes are reserved beyond the change"
    )


def _change_layout(args: argparse.Namespace) -> int:
    from snowredis.core.presets import resolve_layout
    from snowredis.monitor.layout_change import change_layout, undo_change

    if (args.new_layout is None) != args.undo:
        raise ConfigError("name the new layout after the pool, or give --undo")
    caller_ms = time.time_ns() // 1_000_000
    with open_known_pool(args) as pool:
        info, client = pool.info(), pool.only_server()
        if args.undo:
            undo_change(client, info, caller_ms=caller_ms)
            print(f"pool {pool.name} at {pool.where} keeps its layout {info.layout}")
            return ExitCode.OK
        layout = resolve_layout(args.new_layout)
        delay_ms = round(args.delay_s * 1000)
        change = change_layout(client, info, layout, delay_ms=delay_ms, caller_ms=caller_ms, force=args.force)
        where = pool.where
    wait = duration(change.floor_ms - change.at_ms)
    print(f"pool {args.pool} at {where} changes its layout at {time_of(change.at_ms)}, in {args.delay_s:g} s")
    print(f"  from  {info.layout}")
    print(f"  to    {layout}")
    print(
        f"no id can be repeated: the old ids are all before {time_of(change.floor_ms)}, the new ones after; "
        f"{'every new id is greater than every old one' if change.sorted else 'new ids may be lower than old ones'}"
    )
    print(
        "until then the old layout goes on; after it, start processes with the new one: the first of them waits for "
        f"{wait}"
    )
    return ExitCode.OK


_CHANGE_LAYOUT = Subcommand(
    "change-layout",
    "give a living pool another layout, if no id can be repeated",
    """First it proves that no id of the new layout, from the change on, equals one that the pool's layouts
could make before; if one can, nothing is changed. Then the change is planned: until its moment, workers go on, and
those with the new layout are refused. From then on, those with the old one are refused and stop; those with the new
one start after a wait of ttl + max-clock-lead + redis-skew + failover-slack, when all old reservations have ended.

whois goes on to work for old ids: the pool remembers which layout it had when.""",
    [
        ("snowredis pool change-layout orders 41/0/2/12/8", "in 10 s"),
        ("snowredis pool change-layout orders twitter --in 3600", "in an hour"),
        ("snowredis pool change-layout orders --undo", "before its moment"),
    ],
    _add_change_layout_arguments,
    _change_layout,
)


def _add_delete_arguments(parser: Parser) -> None:
    add_pool_name(parser)
    add_redis(parser, pool=False)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="also if workers are alive")


def _delete(args: argparse.Namespace) -> int:
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
        print(
            "its number {1} stays its own: registry {0} gives it to no other pool until you run: snowredis registry "
            "free {1} --registry {0}".format(*number)
        )
    if deletion.alive:
        workers = "1 worker was" if deletion.alive == 1 else f"{deletion.alive:,} workers were"
        print(
            f"{workers} alive: each creates the pool again at its next heartbeat and keeps its "
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


def _number_of(pool: WorkerPool) -> tuple[str, int] | None:
    """Return registry and shard number of the pool; None if it has none, or is broken."""
    try:
        stored = pool.info().settings
    except (PoolNotFound, StoreUnavailable):
        return None
    registry, _, registration = stored.get("registry", "").partition("/")
    return (registry, int(stored["datacenter"])) if registration else None


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


_DELETE = Subcommand(
    "delete",
    "delete a pool and its history",
    """No id is repeated: Redis keeps the time up to which workers may still make ids, and new workers of a pool
of this name wait for it, whatever its settings. A broken pool can be deleted, too.

With --force: living workers create the pool again at their next heartbeat and keep their worker ids; if a pool with
other settings was created in its place, they stop making ids. So stop them first, or create the pool with its new
settings at once.""",
    [
        ("snowredis pool delete orders", "asks first"),
        ("snowredis pool delete orders --yes", "does not ask"),
        ("snowredis pool delete orders --yes --force", "even if workers are alive"),
    ],
    _add_delete_arguments,
    _delete,
)


SUMMARY = "create, show, change and delete pools"
ABOUT = ""
EXAMPLES = [
    ("snowredis pool create orders --ttl 30", "before the first start of a fleet"),
    ("snowredis pool show", "all pools of a Redis"),
    ("snowredis pool delete orders", "asks first"),
]


def add_arguments(parser: Parser) -> None:
    add_commands(parser, "action", [_CREATE, pool_show, _CHANGE_LAYOUT, _DELETE])


def run(args: argparse.Namespace) -> int:
    return print_help(args)
