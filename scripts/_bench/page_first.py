"""Tables of the part `first`: one id after a pause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts._bench.contestants import BY_LABEL, OURS
from scripts._bench.measuring import BASE
from scripts._bench.pauses import PAUSES
from scripts._bench.tables import Results, markdown, number, spread

IDS, BOUND = "ids.next_id()", "snowredis.next_id()"
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
