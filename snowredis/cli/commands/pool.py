"""`pool`: the commands that create, show, change and delete pools."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snowredis.cli import output
from snowredis.cli.options import Command, Parser, confirm, open_known_pool, open_pool, require_pool, seconds, settings
from snowredis.cli.output import Column, Line, Pair, pairs, printable, time_of, write
from snowredis.cli.pool_text import pool_lines, status_lines
from snowredis.core.presets import preset_name
from snowredis.core.values import duration
from snowredis.errors import PoolNotFound, SnowredisError, StoreRefused, StoreUnavailable
from snowredis.process.clock import now_ms
from snowredis.settings import SETTINGS
from snowredis.signatures import settings_of

if TYPE_CHECKING:
    from snowredis.core.layout import Layout
    from snowredis.monitor.snapshot import PoolInfo
    from snowredis.snowflake.replies import CreateReply
    from snowredis.worker_pool import WorkerPool


def _add_create_arguments(parser: Parser) -> None:
    parser.add_pool_name()
    parser.add_redis(pool=False)
    of_pool = [setting for setting in SETTINGS.values() if setting.of_pool]
    parser.add_settings(*of_pool, SETTINGS["registry_url"])
    parser.add_yes()


def _create(args: argparse.Namespace) -> None:
    from snowredis.connection import check_end
    from snowredis.core.presets import resolve_layout
    from snowredis.snowflake.open import has_registry, open_store
    from snowredis.snowflake.replies import Created

    require_pool(args)
    url, options = settings(args)
    options |= {"min_replicas": 0}
    check_end(resolve_layout(options.get("layout")), now_ms())
    if has_registry(options):
        reply = _register(url, options)
    else:
        _check_not_emptied(args)
        with contextlib.closing(open_store(url, options, administers=True)) as store:
            reply = store.create(now_ms())
    created = isinstance(reply, Created)
    wait_ms = 0 if reply is None else reply.floor_ms - reply.redis_ms
    result = "was created" if created else "already exists, with the same settings; nothing was changed"
    with open_pool(args) as pool:
        info = pool.info()
        print(f"pool {pool.name} at {pool.where} {result}")
    if wait_ms > 0:
        reason = "Redis did not know the pool, or was restarted, when a worker or this command asked"
        if created:
            reason = "the pool of this name before ends then"
        write(output.wrapped([], f"new workers wait for {duration(wait_ms)}: {reason}"))
    write(pairs(settings_rows(info), wrap=True))


def _check_not_emptied(args: argparse.Namespace) -> None:
    """Ask if Redis was emptied since a process renewed a lease there: it may live, and make ids of this pool."""
    from snowredis.servers.runner import server_of, translated
    from snowredis.snowflake.protocol import pool_keys
    from snowredis.snowflake.redis_store import load

    with open_pool(args) as pool, contextlib.suppress(StoreRefused), translated(pool.where):
        client = server_of(pool.client, pool_keys(pool.name)[0])
        flushed = {"cmdstat_flushall", "cmdstat_flushdb"} & client.info("commandstats").keys()
        if not (flushed and any(client.script_exists(load("renew").sha))) or any(client.scan_iter("snowredis:{*")):
            return
        print(
            f"Redis at {pool.where} has no pool, and was emptied: a process has renewed a lease there since its start. "
            "Processes that live put their pool back within ttl / 3, and new ones wait as long as needed."
        )
    confirm(args, f"Are you sure that no process of pool {args.pool} lives?", "nothing was created")


def _register(url: Any, options: dict[str, Any]) -> CreateReply | None:
    """Create the pool with a number of its registry; return None if it existed and the number was confirmed."""
    from snowredis.registry.registration import open_registered

    with contextlib.closing(open_registered(url, options)) as registered:
        created = registered.register(now_ms)
        config, registry = registered.config, registered.registry
        print(f"pool {config.name} has the number {config.datacenter} of registry {registry.name} at {registry.where}")
    return created


_CREATE = Command(
    "create",
    "create a pool that is really new, so that its first worker does not wait",
    """By typing this you say: no process of a pool of this name could make ids within the last outage-reserve (24 h),
neither an idle worker with a lease nor a process that did not reach Redis. If that is wrong, ids can be repeated.

So no worker waits, and outage lanes are open at once. Without this command the first worker waits for ttl +
max-clock-lead + redis-skew, and outage lanes open after an outage-reserve, which is always safe. All processes of the
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


def _add_show_arguments(parser: Parser) -> None:
    parser.add_pool_name()
    parser.add_redis(pool=False)
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="an object, or a list of all pools")


def _show(args: argparse.Namespace) -> None:
    if args.pool is None:
        _show_all(args)
        return
    from snowredis.monitor.status import status_of

    with open_known_pool(args) as pool:
        snapshot, where = pool.snapshot(), pool.where
    info, status = snapshot.info, status_of(snapshot)
    if args.json:
        output.print_json({"pool": info, "status": status})
    else:
        rows = [*settings_rows(info), *_state_rows(info, args.time_text)]
        write([*pool_lines(where, snapshot), *status_lines(status, args.time_text), *pairs(rows, wrap=True)])


def settings_rows(info: PoolInfo) -> list[Pair]:
    """Return the pool's settings by name, in the units of connect()."""
    settings = {"outage_reserve": "0 s"} | settings_of(info.signature)
    others = [name for name in SETTINGS if name in settings and name != "layout"]
    return [("layout", _layout_text(info.layout)), *((name.replace("_", " "), settings[name]) for name in others)]


def _layout_text(layout: Layout) -> str:
    return f"{preset_name(layout) or ''}  {layout}".lstrip()


def _state_rows(info: PoolInfo, time_text: Callable[[int], str]) -> list[Pair]:
    counters = ("claims", "releases", "expired", "died", "returned", "adopted", "lost")
    return [
        ("counters", ", ".join(f"{name} {getattr(info, name):,}" for name in counters)),
        # the status says more
        ("alarms", [(f"{info.alarms:,}", "bad" if info.alarms else "")]),
        *_layout_rows(info, time_text),
        ("created", time_text(info.created_ms) if info.created_ms else "?"),
        ("incarnation", f"{printable(info.incarnation, 100)}, version {info.version:,}"),
    ]


def _layout_rows(info: PoolInfo, time_text: Callable[[int], str]) -> list[Pair]:
    """Return the layouts that the pool had, has and will have; nothing for a pool that always had one."""
    if len(info.layouts) < 2:
        return []
    rows: list[Pair] = []
    for period in info.layouts:
        since = f"from {time_text(period.from_ms)}" if period.from_ms else "from the beginning"
        until = f" to {time_text(period.until_ms)}" if period.until_ms else ""
        rows.append(("layouts" if not rows else "", f"{since}{until}: {_layout_text(period.layout)}"))
    return rows


def _show_all(args: argparse.Namespace) -> None:
    infos: list[PoolInfo] = []
    unreadable: list[str] = []
    with open_pool(args) as server:
        where = server.where
        for name in server.pools():
            try:
                with open_pool(args, name) as pool:
                    infos.append(pool.info())
            except SnowredisError as error:
                # keys of another program may look like a pool; the other pools are shown nevertheless
                unreadable.append(f"{printable(name, output.MAX_FOREIGN)}: {printable(str(error), 200)}")
    if args.json:
        output.print_json(infos)
    elif infos or unreadable:
        write([[("pools at ", "dim"), (where, "")], [], *_all(infos)])
    else:
        print(f"there is no pool at {where}; create one with: snowredis pool create NAME")
    for line in unreadable:
        print(line, file=sys.stderr)


def _all(infos: list[PoolInfo]) -> list[Line]:
    columns = [Column("pool", shrinks=True), Column("leased", right=True), Column("of", right=True)]
    columns += [Column("peak", right=True, optional=True), Column("claims", right=True, optional=True)]
    columns += [Column("deaths", right=True, optional=True), Column("alarms", right=True)]
    columns += [Column("ttl", right=True, optional=True), Column("layout", shrinks=True, optional=True)]
    rows: list[list[output.Cell]] = [
        [
            (info.name, "strong"),
            (f"{info.used:,}", "warn" if info.free == 0 else "good" if info.used else ""),
            f"{info.capacity:,}",
            f"{info.peak:,}",
            f"{info.claims:,}",
            f"{max(0, info.deaths - info.returned):,}",
            (f"{info.alarms:,}", "bad" if info.alarms else ""),
            f"{info.ttl_ms / 1000:g} s",
            preset_name(info.layout) or str(info.layout),
        ]
        for info in infos
    ]
    return output.table(columns, rows)


_SHOW = Command(
    "show",
    "show a pool, or all of them",
    "",
    [
        ("snowredis pool show", "all pools, a line each"),
        ("snowredis pool show orders", "settings, use and counters of one"),
        ("snowredis pool show orders --json", "for programs"),
    ],
    _add_show_arguments,
    _show,
)


def _add_change_layout_arguments(parser: Parser) -> None:
    parser.add_argument("pool", metavar="NAME")
    parser.add_argument("new_layout", metavar="NEW", help="a preset's name, or a spec")
    parser.add_redis(pool=False)
    text = "when, in seconds from now (default: as soon as possible)"
    parser.add_argument("--in", dest="delay_s", type=seconds, default=0.0, metavar="S", help=text)
    parser.add_yes()


def _change_layout(args: argparse.Namespace) -> None:
    from snowredis.core.presets import resolve_layout
    from snowredis.worker_pool import change_layout

    require_pool(args)
    with open_known_pool(args) as pool:
        info, layout = pool.info(), resolve_layout(args.new_layout)
        when = f"in {args.delay_s:g} s" if args.delay_s else "as soon as no reservation reaches beyond"
        text = (
            f"Change pool {pool.name} to {layout} {when}? Processes with {info.layout} stop then; it cannot be undone."
        )
        confirm(args, text)
        change = change_layout(pool, layout, delay_ms=round(args.delay_s * 1000))
    print(
        f"pool {args.pool} at {pool.where} changes its layout at {time_of(change.at_ms)}, in "
        f"{duration(change.at_ms - info.now_ms)}"
    )
    print(f"  from  {info.layout}")
    print(f"  to    {layout}")
    print(
        f"no id can be repeated: the old ids are all before {time_of(change.at_ms)}, the new ones after; "
        f"{'every new id is greater than every old one' if change.sorted else 'new ids may be lower than old ones'}"
    )
    print("until then processes use the old layout. After that, start them with the new one")


_CHANGE_LAYOUT = Command(
    "change-layout",
    "give a living pool another layout, if no id can be repeated",
    """First it proves that no id of the new layout, from the change on, equals one that the pool's layouts
could make before; if one can, nothing is changed. Then the pool gets an end: until then, workers go on, and those with
the new layout are refused. From then on, those with the old one are refused and stop, and those with the new one start.

No reservation reaches beyond the end, so it is not before the ends of all outage lanes: in a pool that has them, a day
from now. It is set once, on all replicas, and cannot be undone or moved.

whois goes on to work for old ids: the pool remembers which layout it had when.""",
    [
        ("snowredis pool change-layout orders 41/0/2/12/8", "asks; at once"),
        ("snowredis pool change-layout orders twitter --in 90000", "in 25 hours"),
    ],
    _add_change_layout_arguments,
    _change_layout,
)


def _add_delete_arguments(parser: Parser) -> None:
    parser.add_pool_name()
    parser.add_redis(pool=False)
    parser.add_yes()
    parser.add_argument("--force", action="store_true", help="even if workers are alive, or it is damaged")


def _delete(args: argparse.Namespace) -> None:
    require_pool(args)
    with open_known_pool(args) as pool:
        alive, use, number = _use(pool)
        # without information about the pool there is nothing to ask; one in use is refused below
        if use and (not alive or args.force):
            confirm(args, f"delete pool {pool.name} at {pool.where} ({use})?", "nothing was deleted")
        deletion = pool.delete(force=args.force)
    if deletion.dropped:
        print(f"pool {args.pool} at {pool.where} was removed, as if Redis had lost it: new workers wait")
    elif deletion.over:
        print(f"pool {args.pool} at {pool.where} was deleted")
    else:
        print(
            f"pool {args.pool} at {pool.where} ends at {time_of(deletion.end_ms)}, in {duration(deletion.wait_ms)}: "
            "something is reserved in it until then, and no other pool of this name can be created"
        )
    if number is not None:
        print(
            "its number {1} stays its own: registry {0} gives it to no other pool until you run: snowredis registry "
            "free {1} --registry {0}".format(*number)
        )
    if deletion.alive:
        workers = "1 worker is" if deletion.alive == 1 else f"{deletion.alive:,} workers are"
        print(f"{workers} alive: stop them, or they create the pool again")
    if deletion.over and deletion.wait_ms:
        print(f"new workers of a pool of this name start in {duration(deletion.wait_ms)}, to repeat none of its ids")


def _use(pool: WorkerPool) -> tuple[int, str, tuple[str, str] | None]:
    """Return how many workers are alive, the use of the pool as text, and its registry and shard number, if any.

    The text is empty if the pool does not exist.
    """
    try:
        info = pool.info()
    except PoolNotFound:
        return 0, "", None
    except StoreUnavailable as error:
        # a broken pool can be deleted; if Redis does not answer, the next line fails, too
        alive = len(pool.workers())
        return alive, f"{alive:,} worker ids leased; {printable(error.reason, 200)}", None
    registry, _, registration = info.settings.get("registry", "").partition("/")
    number = (registry, info.settings["datacenter"]) if registration else None
    return info.used, f"{info.used:,} worker ids leased, {info.claims:,} claims so far", number


_DELETE = Command(
    "delete",
    "delete a pool and its history",
    """No id is repeated: the pool gets the earliest end that is behind everything that was reserved in it, and the
next pool of this name starts there, with any settings. If all workers ended in an orderly way, it is over at once.
After a kill, its end is that of an outage lane, up to a day from now: the command says when. It cannot be undone.

With --force: living workers make ids until the end, so stop them, or they create the pool again then. A pool whose
settings cannot be read, or of another version, is removed as if Redis had lost it: new workers wait.""",
    [
        ("snowredis pool delete orders", "asks first"),
        ("snowredis pool delete orders --yes", "does not ask"),
        ("snowredis pool delete orders --yes --force", "even if it is in use"),
    ],
    _add_delete_arguments,
    _delete,
)


POOL = Command("pool", "create, show, change and delete pools", "", commands=[_CREATE, _SHOW, _CHANGE_LAYOUT, _DELETE])
