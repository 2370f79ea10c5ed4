"""`snowredis migrate proof`: can old and new ids be equal?

Old ids nearly always stay: numbers of a counter are far below the ids of a layout. The proof says so for the column as
it is, and names the start, or the epoch, from which it holds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, moment_ms, natural
from snowredis.cli.output import Line, printable, time_of, wrapped, write
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import preset_name, resolve_layout
from snowredis.core.values import duration
from snowredis.merge.collisions import IdSet, Proof, Range, counter_ids, layout_ids, prove

AUTO_INCREMENT = "auto-increment"


def _add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    text = "the column of the ids, in a database: postgresql://host/db#orders.id"
    add("source", nargs="?", metavar="SOURCE", help=text)
    text = f"the old ids: {AUTO_INCREMENT} (the default), or a layout's name or spec"
    add("--from", dest="old", default=AUTO_INCREMENT, metavar="LAYOUT", help=text)
    add("--max", type=natural, metavar="ID", help="the greatest old id at --start")
    text = "when the first old id was made, of a layout (default: its epoch)"
    add("--since", type=moment_ms, metavar="TIME", help=text)
    text = "when the last old id is made (default: at --start)"
    add("--until", type=moment_ms, metavar="TIME", help=text)
    text = "those that made old ids: 3, or 0-31 (default: any)"
    add("--old-datacenter", type=_range, metavar="N", help=text)
    add("--old-worker", type=_range, metavar="N", help="the same, of worker ids")
    text = "the layout of the new ids (default: 'default')"
    add("--to", dest="new", default="default", metavar="LAYOUT", help=text)
    text = "those that make new ids (default: any)"
    add("--datacenter", type=_range, metavar="N", help=text)
    text = "when the first new id is made: an ISO date or time (UTC), or Unix ms (default: now)"
    add("--start", type=moment_ms, metavar="TIME", help=text)
    text = "how far clocks may be off, on both sides (default: 10)"
    add("--clock-error", type=natural, default=10, metavar="S", help=text)


def _range(text: str) -> Range:
    low, dash, high = text.partition("-")
    try:
        return natural(low), natural(high if dash else low)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is neither a number nor a range: write it as 3 or 0-31"
        ) from None


def _run(args: argparse.Namespace) -> int:
    if args.source is not None:
        _measure(args)
    start_ms = time.time_ns() // 1_000_000 if args.start is None else args.start
    error_ms = args.clock_error * 1000
    proof = prove(
        _old_ids(args, start_ms, error_ms),
        resolve_layout(args.new),
        start_ms=start_ms,
        clock_error_ms=error_ms,
        datacenters=args.datacenter,
    )
    write(_lines(proof))
    return ExitCode.OK if proof.distinct else ExitCode.FOUND_CLASHES


def _measure(args: argparse.Namespace) -> None:
    """Take what the command line does not say from the column: its greatest id, and when its first id was made."""
    import sqlalchemy as sa

    from snowredis.merge.databases import open_database, reading
    from snowredis.merge.sources import column_of, parse_sources

    (source,) = parse_sources([args.source])
    if source.kind != "database":
        text = f"{source.shown} is a file. Name a column of a database, as postgresql://host/db#orders.id."
        raise CommandError(ExitCode.BAD_INPUT, text)
    engine = open_database(source.location)
    column = column_of(engine, source)
    with reading(engine) as connection:
        first, last = connection.execute(sa.select(sa.func.min(column), sa.func.max(column))).one()
    if first is not None and int(first) < 0:
        raise CommandError(
            ExitCode.BAD_INPUT,
            f"{source.shown} has the id {int(first)}, and ids are 0 or more. Correct that row first.",
        )
    if args.max is None:
        args.max = 0 if last is None else int(last)
    if args.old != AUTO_INCREMENT and args.since is None and first is not None:
        args.since = resolve_layout(args.old).decode(int(first)).timestamp_ms


def _old_ids(args: argparse.Namespace, start_ms: int, error_ms: int) -> IdSet:
    if args.old != AUTO_INCREMENT:
        layout = resolve_layout(args.old)
        if args.max is not None:
            _check_max(layout, args.max, start_ms + error_ms)
        return layout_ids(
            layout,
            from_ms=args.since,
            until_ms=(start_ms if args.until is None else args.until) + error_ms,
            datacenters=args.old_datacenter,
            workers=args.old_worker,
        )
    if args.max is None:
        raise CommandError(
            ExitCode.USAGE,
            "the greatest old id is unknown, so nothing can be proved. Add --max with SELECT max(id) of the table, or "
            "the table itself as postgresql://host/db#table.column, or --from with the layout of the old ids.",
        )
    return counter_ids(max(1, args.max))


def _check_max(layout: Layout, an_id: int, latest_ms: int) -> None:
    """Refuse a layout that the greatest old id does not fit."""
    time_ms = layout.decode(an_id).timestamp_ms
    if time_ms > latest_ms:
        raise CommandError(
            ExitCode.BAD_INPUT,
            f"by the layout {layout}, id {an_id} was made at {time_of(time_ms)}, after the switch. Nothing was "
            "proved; check --from: 'snowredis decode --layout' shows when an id was made.",
        )


# --- the proof as text -----------------------------------------------------------------------------------


def _lines(proof: Proof) -> list[Line]:
    """Return the proof as text for people."""
    rows = [("old ids", "", "", _described(proof.old)), ("new ids", "", "", _described(proof.new))]
    rows += [("equal", *_whether_equal(proof)), ("order", *_whether_sorted(proof))]
    if not (proof.distinct and proof.sorted):
        rows += [("to do", "", "", text) for text in _remedies(proof)]
    # all texts begin in the same column
    return [
        line for label, word, style, text in rows for line in wrapped([(f"{label:<9}", "dim"), (word, style)], text)
    ]


def _described(ids: IdSet) -> str:
    if ids.layout is None:
        return f"{AUTO_INCREMENT}, {ids.lowest:,} to {ids.highest:,}"
    layout, (_, first, last), *others = ids.layout, *ids.fields
    from_text, until_text = time_of(layout.ms_at(first)), time_of(layout.ms_at(last + 1) - 1)
    text = f"{preset_name(layout) or layout_spec(layout)}, {from_text} to {until_text}"
    named = zip([name for name, bits in layout.fields[1:] if bits], others, strict=True)
    for name, (bits, low, high) in named:
        if high - low + 1 < 1 << bits:
            text += f", {name} {low}" + (f"-{high}" if high > low else "")
    return text


def _whether_equal(proof: Proof) -> tuple[str, str, str]:
    """Return the verdict, its style, and the reason."""
    if proof.common is None:
        return "never: ", "good", "no new id is an old one"
    count, lowest, _ = proof.common
    makers = f"{_maker(proof.old, lowest)}, and {_maker(proof.new, lowest)}"
    return "possible: ", "bad", f"{count:,} ids; the first is {lowest}, {makers}"


def _maker(ids: IdSet, an_id: int) -> str:
    if ids.layout is None:
        return "counted"
    parts = ids.layout.decode(an_id)
    datacenter = f"datacenter {parts.datacenter} " if ids.layout.datacenter_bits else ""
    return f"made at {time_of(parts.timestamp_ms)} by {datacenter}worker {parts.worker}"


def _whether_sorted(proof: Proof) -> tuple[str, str, str]:
    if proof.sorted:
        return "kept: ", "good", "every new id is greater than every old one"
    text = f"the smallest new id is {proof.new.lowest}, the greatest old one {proof.old.highest}"
    return "not kept: ", "warn", text


def _remedies(proof: Proof) -> list[str]:
    """Return what a person can do: for equal ids first, then for the order."""
    texts = []
    starts = {proof.distinct_from_ms: "no new id equals an old one"}
    # if both begin at one moment, the order says more
    starts[proof.sorts_from_ms] = "all new ids are greater"
    for time_ms, effect in starts.items():
        if time_ms is not None and time_ms > proof.start_ms:
            texts.append(f"start at {time_of(time_ms)}, {duration(time_ms - proof.start_ms)} later: then {effect}")
    if (epoch_ms := proof.latest_epoch_ms) is not None and epoch_ms < proof.layout.epoch_ms:
        earlier = replace(proof.layout, epoch_ms=epoch_ms)
        texts.append(
            f"or an epoch of {time_of(epoch_ms)} or earlier: --to '{layout_spec(earlier)}', which lasts until "
            f"{time_of(earlier.end_ms)}; then all new ids are greater"
        )
    if not proof.distinct and proof.distinct_from_ms is None:
        texts.append(
            "no later start helps. Use datacenters or worker ids that made no old ids (--old-worker, --datacenter), or "
            "more timestamp bits"
        )
    return texts


PROOF = Command(
    "proof",
    "prove whether old and new ids can be equal, and whether new ones sort after old ones",
    """Decided from all ids that either side can make, not from a sample. Exit code 0: old and new ids
are never equal; 10: they can be.""",
    [
        ("snowredis migrate proof --max 81234567", ""),
        ("snowredis migrate proof --from twitter --to game", "two layouts"),
        ("snowredis migrate proof postgresql://host/db#orders.id", "measured"),
    ],
    _add_arguments,
    _run,
)
