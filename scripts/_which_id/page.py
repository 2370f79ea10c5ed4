"""docs/explanation/which-id.md, made from the results and the template beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "which-id.md"
TEMPLATE = Path(__file__).with_name("which-id.md")
Results = Mapping[str, Any]

_LEAKS = {"time": "time", "worker": "process", "volume": "how many"}
_NEEDS = {"redis": "Redis", "database": "database"}
# what the description of a kind cannot say
_NEEDS_TEXT = {
    "snowflake": "Redis, at the start and every 5 s",
    "segment": "Redis, for each segment",
    "ticket": "Redis, for each id",
    "dated": "Redis, for each block",
}


def _ns(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _table(head: list[str], rows: list[list[str]], *, left: int = 1) -> str:
    lines = [head, ["---"] * left + ["--:"] * (len(head) - left), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _looks(results: Results) -> str:
    rows = []
    for kind, one in results["kinds"].items():
        leaks = ", ".join(_LEAKS[leak] for leak in one["leaks"]) or "nothing"
        needs = _NEEDS_TEXT.get(kind) or ", ".join(_NEEDS[need] for need in one["needs"]) or "nothing"
        rows.append(
            [
                f"`{kind}`",
                one["example"],
                str(one["bytes"]),
                str(one["text_length"]),
                "yes" if one["sortable"] else "no",
                "yes" if one["guessable"] else "no",
                leaks,
                needs,
            ]
        )
    head = ["kind", "example", "bytes", "characters", "sorts by time", "can be guessed", "shows", "needs"]
    return _table(head, rows, left=8)


def _costs(results: Results) -> str:
    rows = [[f"`{kind}`", _ns(one["hot_ns"]), _ns(one["cold_ns"])] for kind, one in results["kinds"].items()]
    return _table(["kind", "hot, ns an id", "after a pause, ns"], rows)


def _loads(name: str, of_database: Mapping[str, Any]) -> str:
    kinds = of_database["kinds"]
    rows = [
        [
            f"`{kind}`",
            f"{one['rows'] / one['took_s']:,.0f}",
            f"{one['index_bytes'] / one['rows']:,.0f}",
            f"{one['pages_written'] / one['rows'] * 1000:,.0f}",
        ]
        for kind, one in sorted(kinds.items(), key=lambda item: -item[1]["rows"] / item[1]["took_s"])
    ]
    return _table([name, "rows a second", "bytes of index a row", "pages written for 1,000 rows"], rows)


def page(results: Results) -> str:
    """Return the page."""
    machine = results["machine"]
    busy = "; other programs ran at the same time, so take the figures as orders of magnitude"
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        looks=_looks(results),
        costs=_costs(results),
        databases="\n\n".join(_loads(name, one) for name, one in results["databases"].items()),
        pages=", ".join(f"{name}: {one['page'] // 1024} kB" for name, one in results["databases"].items()),
        ceiling=f"{1e6 / 1024:,.0f}",
        rows=f"{results['rows']:,}",
        rows_plain=results["rows"],
        batch=f"{results['batch']:,}",
        cache_mb=results["cache_mb"],
        when=results["when"],
        busy=busy if results["busy"] else "",
        cpu=machine["cpu"],
        cores=machine["cores"],
        python=machine["python"],
        versions=machine["databases"],
    )
