"""`registry show`: show which pool has which number. Only reads."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser
from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    ago,
    pairs,
    printable,
    table,
    terminal_width,
    write,
)
from snowredis.cli.registry_access import add_registry, not_found, open_named
from snowredis.cli.times import add_times

if TYPE_CHECKING:
    from snowredis.snowflake.registry import Record, RegistryState

SUMMARY = "show a registry: which pool has which number"
ABOUT = ""
EXAMPLES = [
    ("snowredis registry show", "which pool has which number"),
    ("snowredis registry show world --json", "for programs"),
]


def add_arguments(parser: Parser) -> None:
    add_registry(parser)
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="an object")


def run(args: argparse.Namespace) -> int:
    with open_named(args) as registry:
        state = registry.read()
        if state is None:
            raise not_found(registry)
        where = registry.where
    if args.json:
        print(json.dumps(_as_json(state)))
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


def state_text(record: Record, now_ms: int) -> str:
    """Return alive, idle, deleted, or unconfirmed."""
    if record.retired_ms:
        return "deleted"
    if not record.confirmed_ms:
        return "unconfirmed"
    return "alive" if record.alive_at(now_ms) else "idle"


_STYLES = {"alive": "good", "unconfirmed": "warn", "deleted": "dim", "idle": ""}


def records_table(state: RegistryState) -> list[Line]:
    """Return a table of all numbers."""
    columns = [Column("number", right=True), Column("pool", shrinks=True), Column("state")]
    columns += [Column("confirmed", right=True), Column("where", shrinks=True, optional=True)]
    rows: list[list[Cell]] = []
    for number, record in state.records.items():
        text = state_text(record, state.now_ms)
        confirmed = ago(state.now_ms - record.confirmed_ms) if record.confirmed_ms else "never"
        rows.append(
            [
                f"{number:,}",
                (printable(record.pool, MAX_FOREIGN), "strong"),
                (text, _STYLES[text]),
                confirmed,
                printable(record.owner, 80),
            ]
        )
    return table(columns, rows, terminal_width())


def _as_json(state: RegistryState) -> dict[str, object]:
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
                "state": state_text(record, state.now_ms),
                "taken_ms": record.taken_ms,
                "confirmed_ms": record.confirmed_ms or None,
                "where": record.owner,
            }
            for number, record in state.records.items()
        ],
    }
