"""Tables of the part `first`: one id after a pause."""

from __future__ import annotations

from typing import Any

from scripts._bench.measuring import BASE
from scripts._bench.pauses import PAUSES
from scripts._bench.tables import Results, markdown, spread

_PAUSES = {
    "hot": "hot, one after the other",
    "new ms": "the first of a ms",
    "1.2 ms of sleep": "after 1.2 ms of sleep",
    "100 ms of sleep": "after 100 ms of sleep",
}


def _row(results: Results, label: str, of: str, pause: str) -> dict[str, Any] | None:
    return next(
        (row for row in results["first"]["rows"] if (row["label"], row["of"], row["pause"]) == (label, of, pause)), None
    )


def first(results: Results) -> str:
    """Return one row a statement, with the ratios of each pause."""
    # the part `ids` measures the loop better
    pauses = [pause for pause in PAUSES if pause != "hot"]
    rows = results["first"]["rows"]
    # the clock once: that of the process with the other libraries
    kept = [row for row in rows if row["pause"] == pauses[0] and (row["by"] or row["of"] == rows[0]["of"])]
    cells = []
    for row in sorted(kept, key=lambda row: float(row["ratio"][1])):
        each = [_row(results, row["label"], row["of"], pause) for pause in pauses]
        name = f"**`{row['label']}`** {row['by']}" if row["by"] else f"`{row['label']}`"
        cells.append([name, *(spread(found["ratio"]) if found else "–" for found in each)])
    return markdown([f"one id, to `{BASE}`", *(_PAUSES[pause] for pause in pauses)], cells)
