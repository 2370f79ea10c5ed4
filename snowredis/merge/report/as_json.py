"""The result of a check as JSON. Ids are strings: JavaScript loses digits past 2**53."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from snowredis.merge.check.result import CheckResult

__all__ = ["as_json"]


def as_json(result: CheckResult) -> dict[str, Any]:
    """Return *result* for json.dumps()."""
    return {
        "now_ms": result.now_ms,
        "ids": result.ids,
        "sources": [asdict(source) for source in result.sources],
        "duplicates": {
            "ids": result.repeated_ids,
            "rows": result.repeated_rows,
            "in": [asdict(part) for part in result.duplicates],
            "by_worker": [asdict(part) for part in result.by_worker],
            "by_time": {
                "period_ms": result.period_ms,
                "periods": [asdict(part) for part in result.by_time],
            },
            "examples": [
                {"id": str(example.an_id), "in": [asdict(place) for place in example.occurrences]}
                for example in result.examples
            ],
        },
        "problems": [
            {
                **asdict(problem),
                "kind": str(problem.kind),
                "severity": "error" if problem.is_error else "warning",
            }
            for problem in result.problems
        ],
        "shared_workers": [asdict(shared) for shared in result.shared_workers],
        "read_s": round(result.read_s, 3),
        "compare_s": round(result.compare_s, 3),
    }
