"""`pool`: the commands that create, show and delete pools."""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from typing import Any

from snowredis.cli.exit_codes import CommandError, ExitCode, code_of
from snowredis.cli.options import Command, Parser, confirm, open_known_pool, open_pool, settings
from snowredis.cli.output import show, show_each, show_status, wrapped, write
from snowredis.core.values import duration, time_text
from snowredis.errors import REFUSED, LayoutMismatch, PoolNotFound, StoreUnavailable, count
from snowredis.process.clock import now_ms
from snowredis.settings import SETTINGS, check_settings, required_url


def _add_name(parser: Parser, *, nargs: str | None = None) -> None:
    parser.add_argument("pool", metavar="NAME", nargs=nargs)
    parser.add_redis(pool=False)


def _add_create_arguments(parser: Parser) -> None:
    _add_name(parser)
    parser.add_settings(*(setting for setting in SETTINGS.values() if setting.of_pool))
    text = "the Redis of the tag shards, for --datacenter auto (default: that of the pool)"
    parser.add_argument("--numbers-url", metavar="URL", help=text)
    parser.add_yes()


def _create(args: argparse.Namespace) -> None:
    """Create a pool that is really new, so that its first worker does not wait.

    By typing this you say: no process of a pool of this name could make ids within the last outage-reserve (24 h),
    neither an idle worker with a lease nor a process that did not reach Redis. If that is wrong, ids can be repeated.

    So no worker waits, and outage lanes are open at once. Without this command the first worker waits for ttl +
    max-clock-lead + failover-slack, and outage lanes open after an outage-reserve, which is always safe. All processes
    of the pool need the same settings.

    examples:
      snowredis pool create orders                                     the defaults
      snowredis pool create game --layout game --ttl 60                a layout
      snowredis pool create eu --layout twitter --datacenter 3         datacenter 3
      snowredis pool create s7 --layout game-shards --datacenter auto  a shard
      snowredis pool create ha --failover-slack 20 --ttl 60            failovers
    """
    from snowredis.connection import check_end
    from snowredis.snowflake.protocol import open as opening
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from snowredis.worker_pool import WorkerPool

    # nothing is created or deleted at a guessed address
    required_url(args.url)
    url, options = settings(args)
    check_end(opening.layout_of(options.get("layout")), now_ms())
    _check_not_lost(args)
    if options.get("datacenter") == "auto":
        options["datacenter"] = _shard_number(args, url, options)
    server, config = opening.open_pool(url, check_settings(options | {"min_replicas": 0}), creates=True)
    with contextlib.closing(WorkerPool(server, config.name)) as pool:
        created = pool.create(config)
        info = pool.info()
        ends = f", and ends at {time_text(info.end_ms)}" if info.end_ms else ""
        result = "was created" if created else f"already exists{ends}, with the same settings; nothing was changed"
        print(f"pool {pool.name} at {pool.where} {result}")
    if info.floor_wait_ms:
        reason = "Redis did not know the pool, or was restarted, when a worker or this command asked"
        if created:
            reason = "the pool of this name before ends then"
        write(wrapped("", f"new workers wait for {duration(info.floor_wait_ms)}: {reason}"))
    if info.config != PoolConfig(name=info.name):
        show(info, _SETTINGS)


def _check_not_lost(args: argparse.Namespace) -> None:
    """Ask if Redis lost the pool while processes live: they go on making ids, and would not be in the new one."""
    from snowredis.servers.runner import server_of, translated
    from snowredis.snowflake.protocol.pool_config import pool_keys
    from snowredis.snowflake.protocol.redis_store import load

    with open_pool(args) as pool:
        try:
            with translated(pool.where):
                key, *others = pool_keys(pool.name)
                client = server_of(pool.client, key)
                # only a process with a lease runs this script
                if client.exists(key) or not any(client.script_exists(load("renew").sha)):
                    return
                # other pools are there, and nothing of this one: it is new
                if not client.exists(*others) and any(client.scan_iter("snowredis:{*")):
                    return
                # its connection stays, and the last command of a heartbeat is one of these
                living = sum(each["cmd"] in ("evalsha", "eval", "wait") for each in client.client_list())
        except StoreUnavailable as error:
            if error.code not in REFUSED:
                raise
            living = 0
    if not living:
        return
    print(
        f"Redis at {pool.where} has lost pools, and {living} processes that may make ids are connected. They put their "
        "pool back at their next heartbeat, within ttl / 3, and new ones wait until no id can be repeated."
    )
    confirm(args, f"Are you sure that no process of pool {args.pool} lives?", "nothing was created")


def _shard_number(args: argparse.Namespace, url: Any, options: dict[str, Any]) -> int:
    """Return the number that the pool has; for a new pool, take the next one of the tag."""
    from snowredis.core.presets import resolve_layout
    from snowredis.numbers import take_shard_number

    with open_pool(args) as pool:
        try:
            return int(pool.info().options["datacenter"])
        except PoolNotFound:
            layout = resolve_layout(options.get("layout"))
            number = take_shard_number(args.numbers_url or url, layout)
    print(f"pool {args.pool} has the number {number} of the tag shards")
    return number


_CREATE = Command("create", _create, _add_create_arguments)

_SETTINGS = "layout settings"
_COUNTERS = "capacity used peak claims refused releases expired died returned lost adopted alarms mismatches"
_ALL = "name used capacity peak claims expired died alarms layout end_at"


def _show(args: argparse.Namespace) -> int:
    """Show a pool, or all of them.

    Exits with 1 if one of several pools cannot be read.

    examples:
      snowredis pool show                all pools, a line each
      snowredis pool show orders         settings, use and counters of one
      snowredis pool show orders --json  for programs
    """
    if args.pool is None:
        return _show_all(args)
    from snowredis.monitor.conditions import status_of

    with open_known_pool(args) as pool:
        snapshot = pool.snapshot()
    if show(snapshot.info, f"name {_SETTINGS} {_COUNTERS} created_at end_at", as_json=args.json) and not args.json:
        show_status(status_of(snapshot))
    return ExitCode.OK


def _show_all(args: argparse.Namespace) -> int:
    from snowredis.monitor.pool_reader import PoolReader

    with open_pool(args) as server:
        read = partial(PoolReader, server.client)
        empty = f"there is no pool at {server.where}; create one with: snowredis pool create NAME"
        is_whole = show_each(server.pools(), lambda name: read(name).info(), _ALL, as_json=args.json, empty=empty)
    return ExitCode.OK if is_whole else ExitCode.ERROR


_SHOW = Command("show", _show, partial(_add_name, nargs="?"), json="an object, or one of each pool per line")


def _add_delete_arguments(parser: Parser) -> None:
    _add_name(parser)
    parser.add_yes()
    parser.add_argument("--force", action="store_true", help="even if workers are alive")


def _delete(args: argparse.Namespace) -> None:
    """Delete a pool and its history.

    No id is repeated: the pool gets the earliest end that is behind everything that was reserved in it, and the next
    pool of this name starts there, with any settings. If all workers ended in an orderly way, it is over at once. After
    a kill, its end is that of an outage lane, up to a day from now: the command says when. It cannot be undone.

    With --force, living workers make ids until the end, so stop them, or they create the pool again then.

    examples:
      snowredis pool delete orders                asks first
      snowredis pool delete orders --yes          does not ask
      snowredis pool delete orders --yes --force  even if it is in use
    """
    required_url(args.url)
    with open_known_pool(args) as pool:
        # delete() says what to do with a pool that cannot be read, or that is in use
        with contextlib.suppress(LayoutMismatch, StoreUnavailable):
            info = pool.info()
            if args.force or not info.used:
                use = f"{info.used:,} worker ids leased, {info.claims:,} claims so far"
                confirm(args, f"delete pool {pool.name} at {pool.where} ({use})?", "nothing was deleted")
        try:
            deletion = pool.delete(force=args.force)
        except StoreUnavailable as error:
            # what it says is all there is to do: an end may be set, which stops workers that nobody restarts
            raise CommandError(code_of(error), str(error)) from error
    if deletion.over:
        print(f"pool {args.pool} at {pool.where} was deleted")
    else:
        print(
            f"pool {args.pool} at {pool.where} ends at {time_text(deletion.end_ms)}, in {duration(deletion.wait_ms)}: "
            "something is reserved in it until then, and no other pool of this name can be created"
        )
    if deletion.alive:
        print(f"{count(deletion.alive, 'worker is', 'workers are')} alive: stop them, or they create the pool again")
    if deletion.over and deletion.wait_ms:
        print(f"new workers of a pool of this name start in {duration(deletion.wait_ms)}, to repeat none of its ids")


_DELETE = Command("delete", _delete, _add_delete_arguments)


POOL = Command("pool", about="Create, show and delete pools.", commands=[_CREATE, _SHOW, _DELETE])
