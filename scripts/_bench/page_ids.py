"""Tables of the part `ids`: what an id costs in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts._bench.contestants import BY_LABEL, OURS
from scripts._bench.measuring import BASE
from scripts._bench.tables import Results, markdown, number, spread


def _rows(results: Results, threads: int = 1) -> list[dict[str, Any]]:
    return [row for row in results["ids"]["rows"] if row["threads"] == threads]


def _row(results: Results, label: str, of: str, threads: int = 1) -> dict[str, Any] | None:
    return next((row for row in _rows(results, threads) if (row["label"], row["of"]) == (label, of)), None)


def _is_batch(row: Mapping[str, Any]) -> bool:
    return BY_LABEL[row["label"]].per_call > 1


def single(results: Results) -> str:
    rows = []
    for row in sorted(_singles(results), key=lambda row: row["ratio"][1]):
        contestant = BY_LABEL[row["label"]]
        four = _row(results, row["label"], row["of"], 4)
        package = "" if contestant.package in ("", OURS) else contestant.package
        shared = number(four["to_one_thread"][1]) if four else "–" if contestant.thread_safe else "not thread-safe"
        what = f"**`{row['label']}`** {row['by']}" if row["by"] else f"`{row['label']}`"
        rows.append([what, package, number(row["ns"][1]), spread(row["ratio"]), shared])
    head = ["one at a time", "package", "ns", f"to `{BASE}`", "4 threads to one"]
    return markdown(head, rows, left=2)


def _singles(results: Results) -> list[dict[str, Any]]:
    kept = [row for row in _rows(results) if not _is_batch(row)]
    return [row for row in kept if row["label"] != BASE or row["of"] == results["ids"]["rows"][0]["of"]]


def batches(results: Results) -> str:
    rows = []
    for row in _rows(results):
        if _is_batch(row):
            four = _row(results, row["label"], row["of"], 4)
            last = spread(four["to_one_thread"]) if four else "–"
            rows.append([f"`{row['label']}` {row['by']}", number(row["ns"][1]), spread(row["ratio"]), last])
    return markdown(["batches", "ns", f"to `{BASE}`", "4 threads to one"], rows)


def missing(results: Results) -> str:
    named = [f"`{label}` ({why.rstrip('.')})" for label, why in sorted(results["ids"]["missing"].items())]
    return f"Not measured: {'; '.join(named)}." if named else "Everybody could be measured."
