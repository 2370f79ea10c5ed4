"""Tables of the part `ids`: what an id costs in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts._bench.contestants import BATCH, BUFFER, BY_LABEL, FLOOR, METHOD_FLOOR, OURS
from scripts._bench.measuring import BASE
from scripts._bench.tables import Results, markdown, number, percent, spread

SINGLE, BOUND = "ids.next_id()", "snowredis.next_id()"
LIST, LARGE_FILL = f"ids.next_ids({BATCH:,}), an id", f"ids.fill() of {BUFFER:,}, an id"
# ids of nobody: a figure to compare with, not a library that somebody would use for ids
_BY_HAND = ("secrets.randbits(63)", "random.getrandbits(63)", FLOOR, METHOD_FLOOR)


def us_of(row: Mapping[str, Any]) -> str:
    """Return the statement of a row, and the implementation of snowredis that ran it."""
    return f"{row['label']} · {row['by']}" if row["by"] else str(row["label"])


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
        shared = number(four["to_one_thread"][1]) if four else "–" if contestant.thread_safe else "not thread-safe"
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
