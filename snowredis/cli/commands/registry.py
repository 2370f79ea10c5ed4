"""`registry`: the commands for registries of shard numbers."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import (
    Command,
    Parser,
    add_settings,
    add_times,
    add_yes,
    confirm,
    natural,
    settings,
)
from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    ago,
    pairs,
    print_json,
    printable,
    table,
    terminal_width,
    write,
)
from snowredis.snowflake.open import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from snowredis.snowflake.registry import Place, Registry, RegistryState


def add_registry(parser: Parser, *, positional: bool = True) -> None:
    """Add NAME, a registry, or --registry NAME; and --url, where it is."""
    text = f"default: SNOWREDIS_REGISTRY, else {DEFAULT_REGISTRY}"
    if positional:
        parser.add_argument("registry", nargs="?", metavar="NAME", help=text)
    else:
        parser.add_argument("--registry", metavar="NAME", help=text)
    text = "the Redis of the registry (default: SNOWREDIS_REGISTRY_URL, else SNOWREDIS_URL)"
    parser.add_argument("--url", dest="registry_url", metavar="URL", help=text)


def open_named(args: argparse.Namespace, place: Place | None = None) -> contextlib.closing[Registry]:
    """Open the registry that the command line or the environment names."""
    from snowredis.snowflake.registration import open_registry

    url, options = settings(args)
    server = options.get("registry_url") or (url[0] if isinstance(url, list) else url)
    return contextlib.closing(open_registry(server, options.get("registry") or DEFAULT_REGISTRY, place))


def not_found(registry: Registry) -> CommandError:
    """Return the error for a registry that does not exist."""
    return CommandError(
        ExitCode.POOL_NOT_FOUND,
        f"there is no registry {registry.name!r} at {registry.where}. If it never existed, create it once: snowredis "
        f"registry create {registry.name} --layout LAYOUT. If Redis lost it, name the servers of its pools: snowredis "
        f"registry open {registry.name} --from URL...",
    )


def _add_create_arguments(parser: Parser) -> None:
    add_registry(parser)
    add_settings(parser, "layout")
    parser.add_argument(
        "--durability",
        choices=("detect", "assured"),
        default="detect",
        help="whether Redis may lose writes that it acknowledged: detect: yes, in a restart or failover, after which "
        "the registry gives no new numbers before a person opens it; assured: never (default: detect)",
    )
    parser.add_argument(
        "--first", type=natural, default=1, metavar="N", help="the lowest number that is given (default: 1)"
    )


def _create(args: argparse.Namespace) -> int:
    from snowredis.core.presets import resolve_layout
    from snowredis.errors import ConfigError
    from snowredis.snowflake.registry import Place, Status

    place = Place.of(resolve_layout(settings(args)[1].get("layout")))
    if args.first >= place.capacity:
        raise ConfigError(f"--first {args.first} is too high: the highest number is {place.capacity - 1}")
    with open_named(args, place) as registry:
        reply = registry.create(durability=args.durability, first=args.first)
        if reply.status is Status.CREATED:
            numbers = f"{args.first:,} to {place.capacity - 1:,}"
            print(f"registry {registry.name} at {registry.where} was created; it gives the numbers {numbers}")
            return ExitCode.OK
        print(f"registry {registry.name} at {registry.where} already exists; nothing was changed")
        if reply.closed:
            print(f"it gives no new numbers; see: snowredis registry show {registry.name}")
    return ExitCode.OK


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
    add_registry(parser)
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="an object")


def _show(args: argparse.Namespace) -> int:
    with open_named(args) as registry:
        state = registry.read()
        if state is None:
            raise not_found(registry)
        where = registry.where
    if args.json:
        print_json(registry_record(state))
        return ExitCode.OK
    head: Line = [("registry ", "dim"), (state.name, "strong"), (f" at {where}", "dim")]
    write([head, *pairs(_rows(state, args), wrap=True), [], *records_table(state)])
    return ExitCode.OK


def _rows(state: RegistryState, args: argparse.Namespace) -> list[tuple[str, str | Line]]:
    given = len(state.records)
    opened: str | Line = "new numbers are given"
    if state.closed:
        since = args.time_text(state.closed_ms)
        opened = [(f"gives no new numbers since {since}: {closed_text(state.closed)}", "warn")]
    return [
        ("state", opened),
        ("numbers", f"{given:,} given, the next is {state.next_number:,} of {state.place.capacity:,}"),
        ("place", f"{state.place.bits} bits, {state.place.shift} bits from the right of an id"),
        ("durability", printable(state.durability, 20)),
        ("conflicts", [(f"{state.conflicts:,}", "bad")] if state.conflicts else "0"),
        ("created", args.time_text(state.created_ms) if state.created_ms else "by its pools, after a loss"),
    ]


def closed_text(code: str) -> str:
    """Return the reason why a registry is closed."""
    from snowredis.snowflake.registry import CLOSED_TEXTS

    return CLOSED_TEXTS.get(code, printable(code, 40))


def records_table(state: RegistryState) -> list[Line]:
    """Return a table of all numbers."""
    columns = [Column("number", right=True), Column("pool", shrinks=True), Column("confirmed", right=True)]
    columns.append(Column("where", shrinks=True, optional=True))
    rows: list[list[Cell]] = []
    for number, record in state.records.items():
        confirmed: Cell = ("never", "warn")
        if record.confirmed_ms:
            confirmed = ago(state.now_ms - record.confirmed_ms)
        pool = (printable(record.pool, MAX_FOREIGN), "strong")
        rows.append([f"{number:,}", pool, confirmed, printable(record.owner, 80)])
    return table(columns, rows, terminal_width())


def registry_record(state: RegistryState) -> dict[str, object]:
    """Return a registry as JSON shows it."""
    from snowredis.core.as_json import time_as_json

    return {
        "name": state.name,
        "closed": state.closed or None,
        "durability": state.durability,
        "bits": state.place.bits,
        "shift": state.place.shift,
        "next": state.next_number,
        "conflicts": state.conflicts,
        "numbers": [
            {
                "number": number,
                "pool": record.pool,
                "taken_at": time_as_json(record.taken_ms),
                "confirmed_at": time_as_json(record.confirmed_ms),
                "where": record.owner,
            }
            for number, record in state.records.items()
        ],
    }


_SHOW = Command(
    "show",
    "show a registry: which pool has which number",
    "",
    [
        ("snowredis registry show", "which pool has which number"),
        ("snowredis registry show world --json", "for programs"),
    ],
    _add_show_arguments,
    _show,
)


def _add_open_arguments(parser: Parser) -> None:
    add_registry(parser)
    parser.add_argument(
        "--from",
        dest="servers",
        nargs="+",
        default=[],
        metavar="URL",
        help="servers whose pools confirm their numbers first",
    )
    parser.add_argument("--above", type=natural, metavar="N", help="give only numbers above this one")
    add_yes(parser)


def _open(args: argparse.Namespace) -> int:
    from snowredis.snowflake.registration import confirm_pools
    from snowredis.snowflake.registry import NO_NUMBER

    with open_named(args) as registry:
        for server in args.servers:
            for line in confirm_pools(server, registry, lambda place: open_named(args, place)):
                print(line)
        state = registry.read()
        if state is None:
            raise not_found(registry)
        if state.closed:
            print(f"registry {state.name} is closed: {closed_text(state.closed)}. It knows these pools:")
        else:
            print(f"registry {state.name} is open, as far as is known. It knows these pools:")
        write(records_table(state))
        above = NO_NUMBER if args.above is None else args.above
        following = max(state.next_number, above + 1)
        question = f"Are these all pools that have a number? Then give {following} and above"
        confirm(args, question, f"registry {state.name} was not opened")
        # above also what is shown, if Redis goes back to an older state meanwhile
        reply = registry.open(following - 1, read=state.incarnation)
        if reply.closed:
            print(
                f"it was not opened: Redis may have forgotten more meanwhile ({closed_text(reply.closed)}). Run it "
                f"again: snowredis registry open {registry.name}",
                file=sys.stderr,
            )
            return ExitCode.ERROR
        print(f"registry {registry.name} gives new numbers again, from {reply.highest + 1}")
    return ExitCode.OK


_OPEN = Command(
    "open",
    "let a registry give new numbers again, after its Redis may have forgotten some",
    """Run it when every pool that ever got a number is in the list that it shows. For pools that are missing, name the
servers where they are with --from: their own hashes hold their numbers. A pool also comes back when a process of it
starts. With --above, new numbers are higher than that one, whatever the registry knows.

The number of a pool that is missing may be given to another pool. Then each process of one of the two is refused when
it starts. A process that runs already is not stopped, so their ids may be equal until it ends.""",
    [
        ("snowredis registry open", "shows the numbers, asks"),
        ("snowredis registry open --from redis://s7 redis://s8", "reads their pools"),
        ("snowredis registry open world --above 412 --yes", "the highest given"),
    ],
    _add_open_arguments,
    _open,
)


def _add_free_arguments(parser: Parser) -> None:
    parser.add_argument("number", type=natural, metavar="NUMBER")
    add_registry(parser, positional=False)


def _free(args: argparse.Namespace) -> int:
    from snowredis.snowflake.registry import Status

    with open_named(args) as registry:
        reply = registry.free(args.number)
        if reply.status is Status.MISSING:
            raise not_found(registry)
        if reply.status is Status.UNKNOWN:
            raise CommandError(
                ExitCode.BAD_INPUT, f"no pool has the number {args.number}; nothing was changed"
            )
        print(f"number {args.number} of registry {registry.name} is free; pool {reply.fields[0]} had it")
    return ExitCode.OK


_FREE = Command(
    "free",
    "free the number of a pool that will never make ids again",
    """Stop the processes of the pool first. Another pool, or the same one again, may then be created with this very
number; `auto` never gives it. Ids of both pools differ by their times, as long as the old pool makes none any more.""",
    [
        ("snowredis registry free 17", "its pool is gone for good"),
        ("snowredis registry free 17 --registry world", "of another registry"),
    ],
    _add_free_arguments,
    _free,
)


REGISTRY = Command(
    "registry",
    "give each shard its own number: create, show and open registries",
    """A registry gives numbers to pools, each to one pool: the values of the datacenter bits, so that ids of
different shards are never equal. A pool gets its number with: snowredis pool create NAME --datacenter auto.""",
    [
        ("snowredis registry create --layout twitter", "once"),
        ("snowredis registry show", "which pool has which number"),
        ("snowredis registry open", "after a restart of its Redis"),
        ("snowredis registry free 17", "its pool is gone for good"),
    ],
    commands=[_CREATE, _SHOW, _OPEN, _FREE],
)
