"""`layout`: the presets in a table, and one layout in full. Needs no Redis and does not import redis-py."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command, natural
from snowredis.cli.output import Cell, Column, Line, printable, table, terminal_width, write

if TYPE_CHECKING:
    from snowredis.core.layout import Layout

# arguments of Layout, which are options, too; --epoch and --worker-last are parsed separately
_WIDTHS = ("timestamp_bits", "datacenter_bits", "backup_bits", "worker_bits", "sequence_bits", "tick_ms")


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "layout",
        summary="show how the 63 bits of an id are divided into fields",
        about=(
            "Without arguments: the presets. With a name, a spec or options: that layout in full. Options change the "
            "named layout, or the default one."
        ),
        examples=[
            ("snowredis layout", "the presets, side by side"),
            ("snowredis layout twitter", "one, and its source"),
            ("snowredis layout '39/0/0/16/8;tick_ms=10'", "a spec"),
            ("snowredis layout --worker-bits 12 --sequence-bits 8", "with more workers"),
            ("snowredis layout js-safe --epoch 2026-01-01", "with another epoch"),
        ],
        run=_layout,
    )
    parser.add_argument("layout", nargs="?", metavar="NAME|SPEC")
    for name in _WIDTHS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=natural, metavar="MS" if name == "tick_ms" else "N"
        )
    parser.add_argument(
        "--epoch", type=_epoch_ms, metavar="TIME", help="an ISO date or time (UTC), or Unix ms"
    )
    parser.add_argument(
        "--worker-last", action="store_true", default=None, help="the worker below the sequence"
    )
    parser.add_argument("--json", action="store_true", help="an object, or a list of the presets")


def _epoch_ms(text: str) -> int:
    from datetime import UTC, datetime, timedelta

    if text.isascii() and text.isdigit():
        return natural(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is not a valid time: write it as 2026-01-01, 2026-01-01T12:00:00Z or in Unix ms"
        ) from None
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _layout(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from snowredis.core.presets import layouts, resolve_layout

    changes = {name: value for name in _WIDTHS if (value := getattr(args, name)) is not None}
    if args.epoch is not None:
        changes["epoch_ms"] = args.epoch
    if args.worker_last is not None:
        changes["worker_last"] = args.worker_last
    if args.layout is None and not changes:
        if args.json:
            print(json.dumps([_as_json(layout) for layout in layouts.values()]))
        else:
            write(_presets())
        return ExitCode.OK
    layout = replace(resolve_layout(args.layout), **changes)
    if args.json:
        print(json.dumps(_as_json(layout)))
    else:
        write(_in_full(layout))
    return ExitCode.OK


def name_of(layout: Layout) -> str | None:
    """Return the name of the preset that *layout* equals, if any."""
    from snowredis.core.presets import layouts

    return next((name for name, preset in layouts.items() if preset == layout), None)


def _presets() -> list[Line]:
    import time

    from snowredis.core.presets import layouts

    now_ms = time.time_ns() // 1_000_000
    columns = [Column("layout"), Column("bits"), Column("tick", right=True), Column("until")]
    columns += [Column("years", right=True), Column("workers", right=True), Column("ids/s", right=True)]
    rows: list[list[Cell]] = []
    for name, layout in layouts.items():
        used_up = layout.end_ms <= now_ms
        end = f"{layout.end:%Y-%m-%d}" if layout.end else "past 9999"
        rows.append(
            [
                (name, "strong"),
                "/".join(str(getattr(layout, width)) for width in _WIDTHS[:5]),
                f"{layout.tick_ms:,} ms",
                (end, "bad" if used_up else ""),
                f"{layout.lifetime_years:,.1f}",
                f"{layout.workers:,}",
                f"{int(layout.ids_per_second):,}",
            ]
        )
    notes = [
        "",
        "bits: timestamp/datacenter/backup/worker/sequence",
        "workers: per datacenter; ids/s: per worker",
        "one in full: snowredis layout NAME",
    ]
    return [*table(columns, rows, terminal_width()), *([(note, "dim")] for note in notes)]


def _in_full(layout: Layout) -> list[Line]:
    import textwrap

    from snowredis.core.presets import layout_spec, preset_source

    lines: list[Line] = [[(text, "")] for text in layout.describe().split("\n")]
    lines.append([("spec         ", ""), (layout_spec(layout), "note")])
    name = name_of(layout)
    if name:
        width = min(terminal_width() or 100, 100) - 13
        first, *rest = textwrap.wrap(preset_source(name), width)
        lines.append([("preset       ", ""), (name, "strong")])
        lines.append([(f"source       {first}", "")])
        lines += [[(" " * 13 + text, "")] for text in rest]
    return lines


def _as_json(layout: Layout) -> dict[str, Any]:
    from snowredis.core.presets import layout_spec, preset_source

    name = name_of(layout)
    return {
        "name": name,
        "spec": layout_spec(layout),
        **{width: getattr(layout, width) for width in _WIDTHS},
        "epoch_ms": layout.epoch_ms,
        "worker_last": layout.worker_last,
        "end_ms": layout.end_ms,
        "end": layout.end.isoformat().replace("+00:00", "Z") if layout.end else None,
        "lifetime_years": round(layout.lifetime_years, 3),
        "workers": layout.workers,
        "datacenters": layout.datacenters,
        "namespaces": layout.namespaces,
        "ids_per_second": layout.ids_per_second,
        "source": preset_source(name) if name else None,
    }
