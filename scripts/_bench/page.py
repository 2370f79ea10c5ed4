"""Tables, plots and goals of docs/explanation/performance.md, made from the results of the parts.

Those of the parts `first` and `rows`, and of `start`, are in modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts._bench import page_first, page_start, plots
from scripts._bench.contestants import BATCH, BUFFER, BY_LABEL, OURS, SNOWFLAKE
from scripts._bench.tables import Goal, markdown, number, percent, spread
from snowredis.timing import BASE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
IMAGES = ROOT / "docs" / "images"
Results = Mapping[str, Any]
SINGLE = "ids.next_id()"
LIST, LARGE_FILL = f"ids.next_ids({BATCH:,}), an id", f"ids.fill() of {BUFFER:,}, an id"
# ids of nobody: a figure to compare with, not a library that somebody would use for ids
_BY_HAND = ("secrets.randbits(63)", "random.getrandbits(63)")
# generators renew their lease a little early, so that a fleet does not beat at once: 0.85 to 1 of ttl / 6
BEAT_S = 0.925 * 5.0
# of one core of Redis: as much as one would plan with
PLANNED_SHARE = 0.5
# timestamps of 41 bits and no backup bits leave these to workers and sequences
SHARED_BITS = 22


def us_of(row: Mapping[str, Any]) -> str:
    """Return the statement of a row, and the implementation of snowredis that ran it."""
    return f"{row['label']} · {row['by']}" if row["by"] else str(row["label"])


# --- part ids --------------------------------------------------------------------------------------


def _rows(results: Results, threads: int = 1) -> list[dict[str, Any]]:
    return [row for row in results["ids"]["rows"] if row["threads"] == threads]


def _row(results: Results, label: str, of: str, threads: int = 1) -> dict[str, Any] | None:
    return next((row for row in _rows(results, threads) if (row["label"], row["of"]) == (label, of)), None)


def _is_batch(row: Mapping[str, Any]) -> bool:
    return BY_LABEL[row["label"]].per_call > 1


def _first_python(row: Mapping[str, Any]) -> bool:
    return row["of"] in ("C", "Python")


def single(results: Results) -> str:
    rows = []
    for row in sorted(_singles(results), key=lambda row: row["ratio"][1]):
        contestant = BY_LABEL[row["label"]]
        four = _row(results, row["label"], row["of"], 4)
        package = "" if contestant.package in ("", OURS) else contestant.package
        shared = (
            spread(four["to_one_thread"]) if four else "–" if contestant.thread_safe else "not thread-safe"
        )
        what = f"**`{row['label']}`** {row['by']}" if row["by"] else f"`{row['label']}`"
        rows.append([what, package, contestant.makes, number(row["ns"][1]), spread(row["ratio"]), shared])
    head = ["one at a time", "package", "makes", "ns", f"to `{BASE}`", "4 threads to one"]
    return markdown(head, rows, left=3)


def _singles(results: Results) -> list[dict[str, Any]]:
    kept = [row for row in _rows(results) if not _is_batch(row) and _first_python(row)]
    return [row for row in kept if row["label"] != BASE or row["of"] == results["ids"]["rows"][0]["of"]]


def batches(results: Results) -> str:
    rows = []
    for row in _rows(results):
        if _is_batch(row) and _first_python(row):
            four = _row(results, row["label"], row["of"], 4)
            last = spread(four["to_one_thread"]) if four else "–"
            rows.append([f"`{row['label']}` {row['by']}", number(row["ns"][1]), spread(row["ratio"]), last])
    return markdown(["batches", "ns", f"to `{BASE}`", "4 threads to one"], rows)


def pythons(results: Results) -> str:
    """Return rows of the other Pythons that were requested; none if there were none."""
    rows = []
    for row in results["ids"]["rows"]:
        if _first_python(row) or (row["label"] == BASE and row["of"].startswith("Python")):
            continue
        if row["threads"] == 1 or row["label"] == SINGLE:
            what = f"`{row['label']}`, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
            rows.append([what, row["of"], number(row["ns"][1]), spread(row["ratio"])])
    return markdown(["on other Pythons", "which", "ns", f"to its `{BASE}`"], rows, left=2) if rows else ""


def two_processes(results: Results) -> str:
    rows = [
        [
            f"`{row['label']}` {row['by']}".rstrip(),
            spread(row["alone_ns"]),
            spread(row["ratio"]),
            f"{row['per_second'] / 1e6:,.1f}",
        ]
        for row in results["ids"]["two"]
    ]
    return markdown(["two processes", "ns in one", "in each of two, to one", "both, millions a second"], rows)


def ceilings(results: Results) -> str:
    rows = [
        [f"{row['layout']}, {row['by']}", percent(row["rate"][1]), percent(row["cpu"][1])]
        for row in results["ids"]["ceilings"]
    ]
    return markdown(["one thread at a layout's ceiling", "of the ceiling", "of a core"], rows)


def missing(results: Results) -> str:
    named = [f"`{label}` ({why.rstrip('.')})" for label, why in sorted(results["ids"]["missing"].items())]
    return f"Not measured: {'; '.join(named)}." if named else "Everybody could be measured."


def plot_single(results: Results) -> str:
    rows = []
    for row in sorted(_singles(results), key=lambda row: row["ratio"][1]):
        four = _row(results, row["label"], row["of"], 4)
        package = BY_LABEL[row["label"]].package
        label = us_of(row) if row["by"] or not package else f"{row['label']} · {package}"
        rows.append(plots.Dot(label, row["ratio"], four["ratio"] if four else None, ours=package == OURS))
    return plots.dots(
        "What one id costs, in readings of the clock",
        "time.time_ns() = 1; dots: one thread, rings: four threads; lines: quartiles; logarithmic",
        rows,
    )


# --- parts claims, workers, start ------------------------------------------------------------------


def claims(results: Results) -> str:
    rows = [
        [
            f"{row['workers']:,}",
            row["state"],
            spread(row["claim_us"]),
            spread(row["server_us"]),
            f"{row['bytes_each']:,}" if row["bytes_each"] else "–",
        ]
        for row in results["claims"]["rows"]
    ]
    head = ["worker ids in the pool", "state", "claim, µs", "in the script, µs", "bytes a worker"]
    return markdown(head, rows, left=2)


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


def real_generators(results: Results) -> str:
    real = results["workers"]["real"]
    return (
        f"The {real['generators']:,} real generators stand in one process: their threads take "
        f"{percent(real['own_share_of_core'])} of a core there, {real['own_us_a_beat']:,.0f} µs a heartbeat; they "
        f"claimed their worker ids at {real['claims_per_second']:,.0f} a second, one after the other."
    )


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


def plot_costs(results: Results) -> str:
    found = results["workers"]["costs"]
    series = [
        plots.Series(
            "a claim, round trip", [(row["living"], row["claim_us"][1]) for row in found], plots.OURS
        ),
        plots.Series(
            "a heartbeat, round trip", [(row["living"], row["beat_us"][1]) for row in found], plots.ORANGE
        ),
        plots.Series(
            "a heartbeat, CPU of Redis",
            [(row["living"], row["beat_cpu_us"][1]) for row in found],
            plots.GREEN,
        ),
    ]
    if "claims" in results:
        full = [
            (row["workers"], row["claim_us"][1])
            for row in results["claims"]["rows"]
            if row["state"] == "full but for one"
        ]
        series.append(plots.Series("a claim, of a full pool", full, plots.OTHERS, dashed=True))
    return plots.lines(
        "A claim and a heartbeat cost the same in a pool of any size",
        "µs, median; logarithmic",
        series,
        x_name="living workers",
    )


def plot_share(results: Results) -> str:
    found = results["workers"]["fleets"]
    line = [(workers, workers / BEAT_S * beat_us(results) / 1e6) for workers in (1_000, 10_000, 100_000)]
    return plots.lines(
        "What a fleet costs one core of Redis, at the default heartbeat",
        "measured in real time, a connection for each worker; logarithmic",
        [
            plots.Series("measured", [(row["workers"], row["share_of_core"]) for row in found], plots.OURS),
            plots.Series("rate × unit cost", line, plots.OTHERS, dashed=True, markers=False),
        ],
        x_name="living workers",
        percent=True,
    )


# --- what was asked for ----------------------------------------------------------------------------


def goals(results: Results) -> list[Goal]:
    """Return each goal with the figure that was measured; goals of parts that were not measured are omitted."""
    found: list[Goal] = []

    def at_most(what: str, value: float, limit: float, shown: str) -> None:
        found.append(Goal(what, shown, value <= limit))

    if "first" in results:
        page_first.goals(results, at_most)
    if "ids" in results:
        _goals_of_ids(results, at_most)
    if "start" in results:
        page_start.goals(results, at_most)
    if "workers" in results:
        row = results["workers"]["fleets"][-1]
        what = f"{row['workers']:,} living workers at the default heartbeat: under 5% of a core of Redis"
        at_most(what, row["share_of_core"], 0.05, percent(row["share_of_core"]))
    if "claims" in results:
        full = {
            row["workers"]: row for row in results["claims"]["rows"] if row["state"] == "full but for one"
        }
        base, largest = full[1024]["claim_us"][1], full[max(full)]["claim_us"][1]
        at_most("a claim in a full pool of 1,024: under 1 ms", base, 1000, f"{number(base)} µs")
        what = f"the same of {max(full):,}: at most twice that"
        at_most(what, largest / base, 2, f"{largest / base:.2f} times")
    return found


def _goals_of_ids(results: Results, at_most: Any) -> None:
    kinds = [kind for kind in ("C", "Python") if _row(results, SINGLE, kind)]
    one = {kind: _row(results, SINGLE, kind) for kind in kinds}
    for kind, limit in (("C", 1.0), ("Python", 2.1)):
        row = one.get(kind)
        if row:
            what = f"`{SINGLE}` in {kind}: at most {limit} times `{BASE}`"
            at_most(what, row["ratio"][1], limit, spread(row["ratio"]))
    for kind, limit in (("C", 1.1), ("Python", 1.2)):
        row, bound = one.get(kind), _row(results, "snowredis.next_id()", kind)
        if row and bound:
            times = bound["ratio"][1] / row["ratio"][1]
            what = f"`snowredis.next_id()` in {kind}: at most {limit} times `{SINGLE}`"
            at_most(what, times, limit, f"{times:.2f}")
    best: Any = one[kinds[0]]
    peers = [
        row
        for row in _rows(results)
        if not row["by"] and row["label"] not in (BASE, *_BY_HAND) and row["of"] == best["of"]
    ]
    if peers:
        fastest = min(peers, key=lambda row: row["ratio"][1])
        ahead = fastest["ratio"][1] / best["ratio"][1]
        shown = f"{ahead:.2f} times as fast as the next, `{fastest['label']}`"
        at_most("ahead of every id library", 1 / ahead, 1, shown)
    flakes = [
        row
        for row in peers
        if BY_LABEL[row["label"]].makes == SNOWFLAKE and BY_LABEL[row["label"]].thread_safe
    ]
    if flakes:
        fastest = min(flakes, key=lambda row: row["ratio"][1])
        ahead = fastest["ratio"][1] / best["ratio"][1]
        shown = f"{ahead:.1f} times as fast as `{fastest['label']}`"
        at_most("10 times ahead of the fastest thread-safe Snowflake", 10 / ahead, 1, shown)
    for kind, cpu_limit in (("C", 0.4), ("Python", 0.7)):
        for row in results["ids"]["ceilings"]:
            if (row["by"], row["layout"]) == (kind, "twitter"):
                what = f"layout `twitter`, one thread, {kind}: 99% of its ceiling, less than {cpu_limit:.0%} of a core"
                shown = f"{percent(row['rate'][1])} with {percent(row['cpu'][1])}"
                at_most(what, 0 if row["rate"][1] >= 0.99 and row["cpu"][1] < cpu_limit else 1, 0, shown)
    for label, limit in ((LARGE_FILL, 1.0), (LIST, 25.0)):
        row = _row(results, label, best["of"])
        if row:
            at_most(f"`{label}`: under {limit:g} ns", row["ns"][1], limit, f"{spread(row['ns'])} ns")
    for kind in kinds:
        row = _row(results, SINGLE, kind, 4)
        if row:
            what = f"4 threads, {kind}: an id costs at most 1.1 times what it costs with one"
            at_most(what, row["to_one_thread"][1], 1.1, spread(row["to_one_thread"]))


def goal_table(results: Results) -> str:
    rows = [[goal.what, goal.found, "yes" if goal.met else "**no**"] for goal in goals(results)]
    return markdown(["goal", "measured", "met"], rows, left=3)


# --- all of it -------------------------------------------------------------------------------------

# name of a block on the page -> part that it is made of, and what makes it
TABLES = {
    "single": ("ids", single),
    "batches": ("ids", batches),
    "pythons": ("ids", pythons),
    "two-processes": ("ids", two_processes),
    "ceilings": ("ids", ceilings),
    "missing": ("ids", missing),
    "claims": ("claims", claims),
    "costs": ("workers", costs),
    "fleets": ("workers", fleets),
    "real-generators": ("workers", real_generators),
    "scale": ("workers", scale),
    "start": ("start", page_start.start),
    "first": ("first", page_first.first),
    "first-pythons": ("first", page_first.pythons),
    "first-missing": ("first", page_first.missing),
    "free-threaded": ("first", page_first.scaling),
    "rows": ("rows", page_first.rows),
}
PLOTS = {
    "one-id.svg": ("ids", plot_single),
    "claims-and-heartbeats.svg": ("workers", plot_costs),
    "share-of-redis.svg": ("workers", plot_share),
}


def tables(results: Results) -> dict[str, str]:
    """Return the text of each block, by name, for the parts that were measured."""
    made = {name: make(results) for name, (part, make) in TABLES.items() if part in results}
    return made | {"goals": goal_table(results), "machine": results["about"]}


def write(results: Results) -> list[Path]:
    """Write the tables into the page and draw the plots; return the files that were written."""
    text = PAGE.read_text("utf-8")
    for name, table in tables(results).items():
        start = f"<!-- figures: {name} -->\n"
        if text.count(start) != 1:
            raise SystemExit(f"{PAGE} has no block of figures {name!r}, or more than one")
        before, _, rest = text.partition(start)
        text = f"{before}{start}{table}\n{rest[rest.index('<!-- /figures -->') :]}"
    PAGE.write_text(text, "utf-8")
    IMAGES.mkdir(exist_ok=True)
    drawn = {IMAGES / name: draw(results) for name, (part, draw) in PLOTS.items() if part in results}
    for path, picture in drawn.items():
        path.write_text(picture, "utf-8")
    return [PAGE, *drawn]
