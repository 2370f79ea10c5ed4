"""`registry`: the commands for registries of shard numbers."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from snowredis.cli import output
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, confirm, natural, settings
from snowredis.errors import ConfigError
from snowredis.settings import SETTINGS
from snowredis.snowflake.open import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from snowredis.registry.registry import NumberPlace, NumberRecord, Registry, RegistryState


def _add_registry(parser: Parser, *name: str) -> None:
    """Add a registry, by the option *name* if it is given, and --url, where it is."""
    text = f"default: SNOWREDIS_REGISTRY, else {DEFAULT_REGISTRY}"
    if name:
        parser.add_argument(*name, metavar="NAME", help=text)
    else:
        parser.add_argument("registry", nargs="?", metavar="NAME", help=text)
    text = "the Redis of the registry (default: SNOWREDIS_REGISTRY_URL, else SNOWREDIS_URL)"
    parser.add_argument("--url", dest="registry_url", metavar="URL", help=text)


def _opened(args: argparse.Namespace, place: NumberPlace | None = None) -> contextlib.closing[Registry]:
    """Open the registry that the command line or the environment names."""
    from snowredis.registry.registry import RedisRegistry

    url, options = settings(args, looks=True)
    server, name = options.get("registry_url") or url, options.get("registry") or DEFAULT_REGISTRY
    return contextlib.closing(RedisRegistry(server, name, place))


def _read(registry: Registry) -> RegistryState:
    state = registry.read()
    if state is None:
        raise CommandError(ExitCode.POOL_NOT_FOUND, registry.missing)
    return state


def _add_create_arguments(parser: Parser) -> None:
    _add_registry(parser)
    parser.add_settings(SETTINGS["layout"])
    text = "the lowest number that is given (default: 1)"
    parser.add_argument("--first", type=natural, default=1, metavar="N", help=text)


def _create(args: argparse.Namespace) -> None:
    from snowredis.core.presets import resolve_layout
    from snowredis.registry.registry import NumberPlace, RegistryStatus

    place = NumberPlace.of(resolve_layout(settings(args, looks=True)[1].get("layout")))
    if args.first >= place.capacity:
        raise ConfigError(f"--first {args.first} is too high: the highest number is {place.capacity - 1}")
    with _opened(args, place) as registry:
        reply = registry.create(first=args.first)
        created = reply.status is RegistryStatus.CREATED
        numbers = f"was created; it gives the numbers {args.first:,} to {place.capacity - 1:,}"
        text = numbers if created else "already exists; nothing was changed"
        print(f"registry {registry.name} at {registry.where} {text}")
        if reply.closed and not created:
            print(f"it gives no new numbers; see: snowredis registry show {registry.name}")


_CREATE = Command(
    "create",
    "create a registry that is really new",
    """The layout says where in an id the number is: all pools of the registry need layouts with the same datacenter
bits in the same place. Number 0 is left to pools without a registry, unless --first 0 is given.

Redis may lose a registry, as any key. Its pools remember their numbers and create it again, closed. So never run this
for a registry that existed: it could give numbers a second time.""",
    [
        ("snowredis registry create --layout game-shards", "4,096 numbers"),
        ("snowredis registry create world --layout twitter", "of another name"),
        ("snowredis registry create --layout twitter --first 8", "0 to 7 are in use"),
    ],
    _add_create_arguments,
    _create,
)


def _add_show_arguments(parser: Parser) -> None:
    _add_registry(parser)
    parser.add_argument("--json", action="store_true", help="an object")


def _show(args: argparse.Namespace) -> None:
    with _opened(args) as registry:
        state, where = _read(registry), registry.where
    if args.json:
        output.print_json(state)
        return
    head: output.Line = [("registry ", "dim"), (state.name, "strong"), (f" at {where}", "dim")]
    output.write([head, *output.pairs(_rows(state, output.time_of), wrap=True), [], *_table(state, state.records)])


def _rows(state: RegistryState, time_text: Callable[[int], str]) -> list[output.Pair]:
    opened: str | output.Line = state.closed.text
    if state.closed:
        opened = [(f"gives no new numbers since {time_text(state.closed_ms)}: {state.closed.text}", "warn")]
    numbers = f"{len(state.records):,} given, the next is {state.next_number:,} of {state.place.capacity:,}"
    return [
        ("state", opened),
        ("numbers", numbers),
        ("place", f"{state.place.bits} bits, {state.place.shift} bits from the right of an id"),
        ("conflicts", [(f"{state.conflicts:,}", "bad")] if state.conflicts else "0"),
        ("created", time_text(state.created_ms) if state.created_ms else "by its pools, after a loss"),
    ]


def _table(state: RegistryState, records: Mapping[int, NumberRecord]) -> list[output.Line]:
    columns = [
        output.Column("number", right=True),
        output.Column("pool", shrinks=True),
        output.Column("confirmed", right=True),
        output.Column("where", shrinks=True, optional=True),
    ]
    rows = [
        [
            f"{number:,}",
            output.printable(record.pool, output.MAX_FOREIGN),
            output.ago(state.now_ms - record.confirmed_ms) if record.confirmed_ms else ("never", "warn"),
            output.printable(record.where, 80),
        ]
        for number, record in records.items()
    ]
    return output.table(columns, rows)


_SHOW = Command(
    "show",
    "show a registry: which pool has which number",
    "",
    [("snowredis registry show world", "which pool has which number")],
    _add_show_arguments,
    _show,
)


def _add_open_arguments(parser: Parser) -> None:
    _add_registry(parser)
    text = "servers whose pools confirm their numbers first"
    parser.add_argument("--from", dest="servers", nargs="+", default=[], metavar="URL", help=text)
    parser.add_yes()


def _open(args: argparse.Namespace) -> None:
    from snowredis.registry.registration import confirm_pools

    with _opened(args) as registry:
        for server in args.servers:
            for line in confirm_pools(server, registry):
                print(line)
        state = _read(registry)
        text = f"closed: {state.closed.text}" if state.closed else "open, as far as is known"
        print(f"registry {state.name} is {text}. It knows these pools:")
        output.write(_table(state, state.records))
        question = f"Are these all pools that have a number? Then give {state.next_number} and above"
        confirm(args, question, f"registry {state.name} was not opened")
        # above the numbers that were shown, even if Redis goes back to an older state meanwhile
        reply = registry.open(state.next_number - 1, read=state.incarnation)
        if reply.closed:
            raise CommandError(
                ExitCode.ERROR,
                f"registry {registry.name} was not opened: Redis may have forgotten more meanwhile "
                f"({reply.closed.text}). Run it again: snowredis registry open {registry.name}",
            )
        print(f"registry {registry.name} gives new numbers again, from {reply.highest + 1}")


_OPEN = Command(
    "open",
    "let a registry give new numbers again, after its Redis may have forgotten some",
    """Run it when every pool that ever got a number is in the list that it shows. For pools that are missing, name the
servers where they are with --from: their own hashes hold their numbers. A pool is also listed again when one of its
processes starts.

The number of a pool that is missing may be given to another pool. Then each process of one of the two is refused when
it starts. A process that runs already is not stopped, so their ids may be equal until it ends.""",
    [
        ("snowredis registry open", "shows the numbers, asks"),
        ("snowredis registry open --from redis://s7 redis://s8", "reads their pools"),
    ],
    _add_open_arguments,
    _open,
)


def _add_free_arguments(parser: Parser) -> None:
    parser.add_argument("number", type=natural, metavar="NUMBER")
    _add_registry(parser, "--registry")
    parser.add_yes()


def _free(args: argparse.Namespace) -> None:
    from snowredis.registry.registry import RegistryStatus

    with _opened(args) as registry:
        state = _read(registry)
        record = state.records.get(args.number)
        if record is None:
            raise CommandError(ExitCode.BAD_INPUT, f"no pool has the number {args.number}; nothing was changed")
        output.write(_table(state, {args.number: record}))
        question = "If a process of this pool still runs, its ids will be repeated. Are all of them stopped?"
        confirm(args, question, f"number {args.number} was not freed")
        reply = registry.free(args.number, confirmed_ms=record.confirmed_ms)
        if reply.status is not RegistryStatus.FREED:
            text = f"number {args.number} was confirmed or freed meanwhile, so nothing was changed. Look at it again"
            raise CommandError(ExitCode.ERROR, text)
        print(f"number {args.number} of registry {registry.name} is free; pool {reply.fields[0]} had it")


_FREE = Command(
    "free",
    "free the number of a pool that will never make ids again",
    """Shows the pool, and asks. Stop its processes first. Another pool, or the same one again, may then be created with
this very number; `auto` never gives it. Ids of both pools differ by their times, as long as the old pool makes
none any more.""",
    [("snowredis registry free 17 --registry world", "of another registry")],
    _add_free_arguments,
    _free,
)


REGISTRY = Command(
    "registry",
    "give each shard its own number: create, show and open registries",
    """A registry gives numbers to pools, each to one pool: the values of the datacenter bits, so that ids of
different shards are never equal. A pool gets its number with: snowredis pool create NAME --datacenter auto.""",
    commands=[_CREATE, _SHOW, _OPEN, _FREE],
)
