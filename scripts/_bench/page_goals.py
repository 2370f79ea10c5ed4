"""Goals of the benchmark: each with the figure that was measured, and whether it is met."""

from __future__ import annotations

from scripts._bench import page_first, page_ids, page_start
from scripts._bench.tables import PARTS, AtMost, Goal, Results, markdown, number, percent

HEAD = ("goal", "measured", "met", "part")


def goals(results: Results) -> list[Goal]:
    """Return each goal of the parts that were measured."""
    found: list[Goal] = []
    makers = {
        "first": page_first.goals,
        "ids": page_ids.goals,
        "start": page_start.goals,
        "workers": _of_workers,
        "claims": _of_claims,
    }
    for part, make in makers.items():
        if part in results:

            def at_most(what: str, value: float, limit: float, shown: str, part: str = part) -> None:
                found.append(Goal(what, shown, value <= limit, part))

            make(results, at_most)
    return found


def goal_table(results: Results) -> str:
    """Return the table of goals of the parts that were measured."""
    rows = [[goal.what, goal.found, "yes" if goal.met else "**no**", goal.part] for goal in goals(results)]
    return markdown(HEAD, sorted(rows, key=lambda row: PARTS.index(row[-1])), left=len(HEAD))


def _of_workers(results: Results, at_most: AtMost) -> None:
    row = results["workers"]["fleets"][-1]
    what = f"{row['workers']:,} living workers at the default heartbeat: under 5% of a core of Redis"
    at_most(what, row["share_of_core"], 0.05, percent(row["share_of_core"]))


def _of_claims(results: Results, at_most: AtMost) -> None:
    full = {row["workers"]: row for row in results["claims"]["rows"] if row["state"] == "full but for one"}
    base, largest = full[1024]["claim_us"][1], full[max(full)]["claim_us"][1]
    at_most("a claim in a full pool of 1,024: under 1 ms", base, 1000, f"{number(base)} µs")
    what = f"the same of {max(full):,}: at most twice that"
    at_most(what, largest / base, 2, f"{largest / base:.2f} times")
