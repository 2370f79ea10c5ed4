"""Tables and goals of the part `first`: one id after a pause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts._bench.contestants import BY_LABEL, BY_NAME, FLOOR, METHOD_FLOOR, OURS
from scripts._bench.measuring import BASE
from scripts._bench.pauses import ONE, PAUSES, SHARED
from scripts._bench.tables import AtMost, Results, markdown, number, spread

IDS, BOUND = "ids.next_id()", "snowredis.next_id()"
# pause -> what an id in C may cost, in readings of the clock
_LIMITS = {"new ms": 1.7, "1.2 ms of sleep": 1.2, "100 ms of sleep": 1.3}
_PERCENTILES = ("p50", "p99", "p99.9")
_PAUSES = {
    "hot": "hot, one after the other",
    "new ms": "the first of a ms",
    "1.2 ms of sleep": "after 1.2 ms of sleep",
    "100 ms of sleep": "after 100 ms of sleep",
}


def _row(results: Results, label: str, of: str, pause: str) -> dict[str, Any] | None:
    return next(
        (row for row in results["first"]["rows"] if (row["label"], row["of"], row["pause"]) == (label, of, pause)),
        None,
    )


def _is_first_python(row: Mapping[str, Any]) -> bool:
    return row["of"] in ("C", "Python")


def _table(rows: list[dict[str, Any]], *, which: bool) -> str:
    cells = []
    for pause in PAUSES:
        for row in sorted(
            (row for row in rows if row["pause"] == pause),
            key=lambda row: (row["of"] if which else "", row["ratio"][1]),
        ):
            what = f"**`{row['label']}`**" if row["by"] else f"`{row['label']}`"
            name = f"{what} {row['by']}" if row["by"] and not which else what
            percentiles = ["–" if row["ns"][p] is None else number(row["ns"][p]) for p in _PERCENTILES]
            where = [row["of"]] if which else []
            cells.append([_PAUSES[pause], name, *where, spread(row["ratio"]), *percentiles])
    head = ["one id", "statement", *(["which"] if which else []), f"to `{BASE}`"]
    return markdown([*head, "p50, ns", "p99", "p99.9"], cells, left=3 if which else 2)


def first(results: Results) -> str:
    # the part `ids` measures the loop better
    rows = [row for row in results["first"]["rows"] if _is_first_python(row) and row["pause"] != "hot"]
    # the clock once: that of the process with the other libraries
    return _table([row for row in rows if row["by"] or row["of"] == rows[0]["of"]], which=False)


def pythons(results: Results) -> str:
    """Return rows of the other Pythons that were requested; none if there were none."""
    rows = [row for row in results["first"]["rows"] if not _is_first_python(row)]
    return _table(rows, which=True) if rows else ""


def missing(results: Results) -> str:
    named = [
        f"`{label}` with {results['first']['machines'][of].partition(',')[0]} ({why.rstrip('.')})"
        for of, labels in results["first"]["missing"].items()
        for label, why in sorted(labels.items())
        if BY_LABEL[label].package != OURS
    ]
    return f"Not measured: {'; '.join(dict.fromkeys(named))}." if named else ""


def scaling(results: Results) -> str:
    """Return rows of the free-threaded Pythons; none if there were none."""
    rows = [
        [row["of"], f"`{row['what']}`", row["kind"], number(row["ns"][1]), spread(row["ratio"])]
        for row in results["first"]["scaling"]
    ]
    head = ["which", "statement", "threads", "ns, each", f"to `{BASE}` of 1 thread"]
    return markdown(head, rows, left=3) if rows else ""


def goals(results: Results, at_most: AtMost) -> None:
    for pause, limit in _LIMITS.items():
        row = _row(results, IDS, "C", pause)
        if row:
            what = f"`{IDS}` in C, {_PAUSES[pause]}: at most {limit} times `{BASE}`"
            at_most(what, row["ratio"][1], limit, spread(row["ratio"]))
    for pause in _LIMITS:
        for label, floor in ((BY_NAME, FLOOR), (IDS, METHOD_FLOOR)):
            row, least, peer = (_row(results, name, "C", pause) for name in (label, floor, "ulid_now_bytes()"))
            if row and peer:
                ahead = peer["ratio"][1] / row["ratio"][1]
                what = f"`{label}` in C, {_PAUSES[pause]}: ahead of `ulid_now_bytes()`"
                shown = f"{ahead:.2f} times as fast"
                if least:
                    shown += f" (`{floor}`: {peer['ratio'][1] / least['ratio'][1]:.2f})"
                at_most(what, 1 / ahead, 1, shown)
    for pause in PAUSES:
        row, base = (_row(results, label, "C", pause) for label in (IDS, BASE))
        if row and base and row["ns"]["p99.9"] is not None:
            times = row["ns"]["p99.9"] / max(1, base["ns"]["p99.9"])
            at_most(f"`{IDS}` in C, {_PAUSES[pause]}: p99.9 at most 3 times the clock's", times, 3, f"{times:.2f}")
    for pause in PAUSES:
        row, base = _row(results, IDS, "Python", pause), _row(results, "uuid.uuid4()", "C", pause)
        if row and base:
            times = row["ns"]["p50"] / max(1, base["ns"]["p50"])
            what = f"`{IDS}` in Python, {_PAUSES[pause]}: less than `uuid.uuid4()`"
            at_most(what, times, 1, f"{times:.2f} of it")
    for row in results["first"]["scaling"]:
        most = {ONE: 1.0, SHARED: 1.3}.get(row["kind"])
        if most and row["what"] == IDS and row["of"].startswith("C"):
            what = f"`{IDS}`, {row['of']}, {row['kind']}: each at most {most} times `{BASE}`"
            at_most(what, row["ratio"][1], most, spread(row["ratio"]))
