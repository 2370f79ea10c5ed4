"""Tables of docs/reference/figures.md, made from the results of the parts.

Those of the parts `first`, `ids` and `start` are in modules of their own.
"""

from __future__ import annotations

from pathlib import Path

from scripts._bench import page_first, page_ids, page_start
from scripts._bench.idle import mean_beat_s
from scripts._bench.measuring import quartiles, ratios
from scripts._bench.tables import PARTS, Results, markdown, number, percent, spread
from snowredis.snowflake.protocol.pool_config import PoolConfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "figures.md"
# at the default ttl
BEAT_S = mean_beat_s(PoolConfig(name="any"))
# share of one core of Redis that one would plan with
PLANNED_SHARE = 0.5
# timestamps of 41 bits and no backup bits leave these to workers and sequences
SHARED_BITS = 22


# --- parts workers, start ------------------------------------------------------------------


def costs(results: Results) -> str:
    rows = [
        [
            f"{row['living']:,}",
            f"{1e6 / row['claim_us'][1]:,.0f}",
            spread(row["claim_us"]),
            f"{1e6 / row['beat_us'][1]:,.0f}",
            spread(row["beat_us"]),
            spread(row["beat_cpu_us"]),
            spread(row["life_cpu_us"]),
        ]
        for row in results["workers"]["costs"]
    ]
    head = ["living workers", "claims/s", "claim, µs", "heartbeats/s", "heartbeat, µs"]
    return markdown([*head, "CPU of Redis a heartbeat, µs", "a claim and its release, µs"], rows)


def fleets(results: Results) -> str:
    found = results["workers"]
    rows = [
        [
            f"{row['workers']:,} simulated",
            f"{row['beats_per_second']:,.0f}",
            percent(row["share_of_core"]),
            percent(row["ping_share"]),
            percent(row["idle_share"]),
            number(row["cpu_us_a_beat"]),
            f"{row['bytes_each']:,.0f}",
            f"{row['connection_bytes']:,.0f}",
        ]
        for row in found["fleets"]
    ]
    real = found["real"]
    rows.append(
        [f"{real['generators']:,} real generators", f"{real['beats_per_second']:,.0f}"]
        + [percent(real["share_of_core"]), "–", "–", number(real["cpu_us_a_beat"]), "–", "–"]
    )
    head = [
        "in real time",
        "heartbeats/s",
        "of one core of Redis",
        "PING instead",
        "nothing sent",
        "CPU a heartbeat, µs",
    ]
    return markdown([*head, "bytes a worker", "bytes a connection"], rows)


def idle(results: Results) -> str:
    ours, ping = results["workers"]["idle_us"]["generator"], results["workers"]["idle_us"]["ping"]
    rows = [
        ["one generator", spread(quartiles(ours)), spread(ratios(ours, ping))],
        ["a thread that pings", spread(quartiles(ping)), "1"],
    ]
    return markdown(["an idle process with", "CPU a heartbeat, µs", "in pings"], rows)


def beat_us(results: Results) -> float:
    """Return the CPU time of Redis for one heartbeat in the largest fleet, connections included, in us."""
    return float(results["workers"]["fleets"][-1]["cpu_us_a_beat"])


def scale(results: Results) -> str:
    largest = results["workers"]["fleets"][-1]
    each = largest["bytes_each"] + largest["connection_bytes"]
    rows = []
    for workers in (100, 1_000, 10_000, 100_000, 1_000_000):
        bits = (workers - 1).bit_length()
        beats = workers / BEAT_S
        share = beats * beat_us(results) / 1e6
        sequences = 2 ** (SHARED_BITS - bits)
        rows.append(
            [
                f"{workers:,}",
                f"{beats:,.0f}",
                percent(share) if share < 1 else f"{share:.1f} cores",
                f"{max(1, -(-share // PLANNED_SHARE)):,.0f}",
                f"{workers * each / 1e6:,.1f} MB",
                f"{bits} / {SHARED_BITS - bits}",
                f"{sequences * 1000:,}",
                f"{sequences * workers / 1e6:,.2f} G",
            ]
        )
    head = ["living workers", "heartbeats/s", "of one core of Redis", f"servers at {PLANNED_SHARE:.0%}"]
    head += ["its memory", "worker / sequence bits", "ids/s a worker", "ids/s, all"]
    return markdown(head, rows)


# --- all of it -------------------------------------------------------------------------------------

# name of a table -> part that it is made of, what makes it, and whether the page has it: the others are only printed
TABLES = {
    "single": ("ids", page_ids.single, True),
    "batches": ("ids", page_ids.batches, False),
    "missing": ("ids", page_ids.missing, False),
    "costs": ("workers", costs, True),
    "fleets": ("workers", fleets, True),
    "idle": ("workers", idle, True),
    "scale": ("workers", scale, True),
    "start": ("start", page_start.start, True),
    "first": ("first", page_first.first, True),
}
_END = "<!-- /figures -->"


def _start(name: str) -> str:
    return f"<!-- figures: {name} -->\n"


def _block(text: str, name: str) -> str:
    """Return what a block of the page has."""
    if text.count(_start(name)) != 1:
        raise SystemExit(f"{PAGE} has no block of figures {name!r}, or more than one")
    return text.partition(_start(name))[2].partition(_END)[0]


def tables(results: Results) -> dict[str, str]:
    """Return the text of each block of the page, by name, for the parts that were measured."""
    return {name: make(results) for name, (part, make, on_page) in TABLES.items() if on_page and part in results}


def machine(results: Results) -> str:
    """Return which machine the figures are of, and of which parts this run had none."""
    older = ", ".join(f"`{part}`" for part in PARTS if part not in results)
    return str(results["about"]) + (f" Measured earlier, on the same kind of machine: {older}." if older else "")


def write(results: Results) -> list[Path]:
    """Write the tables into the page; return the files that were written.

    What the page has of parts that were not measured is kept.
    """
    text = PAGE.read_text("utf-8")
    for name, table in (tables(results) | {"machine": machine(results)}).items():
        old = _block(text, name)
        text = text.replace(f"{_start(name)}{old}{_END}", f"{_start(name)}{table}\n{_END}")
    PAGE.write_text(text, "utf-8")
    return [PAGE]
