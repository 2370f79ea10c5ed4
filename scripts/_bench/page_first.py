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


def first(results: Results) -> str:
    """Return one row a statement, with the ratios of each pause."""
    # the part `ids` measures the loop better
    pauses = [pause for pause in PAUSES if pause != "hot"]
    rows = [row for row in results["first"]["rows"] if _is_first_python(row)]
    # the clock once: that of the process with the other libraries
    kept = [row for row in rows if row["pause"] == pauses[0] and (row["by"] or row["of"] == rows[0]["of"])]
    cells = []
    for row in sorted(kept, key=lambda row: float(row["ratio"][1])):
        each = [_row(results, row["label"], row["of"], pause) for pause in pauses]
        name = f"**`{row['label']}`** {row['by']}" if row["by"] else f"`{row['label']}`"
        cells.append([name, *(spread(found["ratio"]) if found else "–" for found in each)])
    return markdown([f"one id, to `{BASE}`", *(_PAUSES[pause] for pause in pauses)], cells)


def pythons(results: Results) -> str:
    """Return rows of the other Pythons that were requested; none if there were none."""
    rows = [row for row in results["first"]["rows"] if not _is_first_python(row)]
    cells = []
    for pause in PAUSES:
        for row in sorted((row for row in rows if row["pause"] == pause), key=lambda row: (row["of"], row["ratio"][1])):
            what = f"**`{row['label']}`**" if row["by"] else f"`{row['label']}`"
            percentiles = ["–" if row["ns"][p] is None else number(row["ns"][p]) for p in _PERCENTILES]
            cells.append([_PAUSES[pause], what, row["of"], spread(row["ratio"]), *percentiles])
    head = ["one id", "statement", "which", f"to `{BASE}`", "p50, ns", "p99", "p99.9"]
    return markdown(head, cells, left=3) if cells else ""


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
