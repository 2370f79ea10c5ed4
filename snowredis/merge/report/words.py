"""Sentences that the reports in the terminal and on the page share."""

from __future__ import annotations

from snowredis.merge.check.result import CheckResult, DuplicatesIn, Problem, SharedWorkers, WorkerRange

__all__ = ["ADVICE_DUPLICATES", "ADVICE_SHARED", "problem_text", "shared_text", "verdict", "where"]

ADVICE_DUPLICATES = (
    "Merge nothing yet: give the rows of one side new ids first (snowredis merge plan), and write all of "
    "these ids to a "
    "file with --duplicates."
)
ADVICE_SHARED = (
    "If both go on making ids, give each its own datacenter or its own pool before they are merged, or let one of them "
    "end."
)


def verdict(result: CheckResult) -> tuple[str, str]:
    """Return the severity, ``error``, ``warning`` or ``ok``, and one sentence."""
    compared = f"among {result.ids:,} in {_count(len(result.sources), 'source')}"
    if result.repeated_ids:
        rows = f"in {result.repeated_rows:,} rows"
        return "error", f"{_ids(result.repeated_ids)} there more than once, {rows}, {compared}."
    none = f"No id is there more than once {compared}"
    if result.errors:
        return "error", f"{none}, but some values cannot be right."
    if result.shared_workers:
        return "warning", f"{none}, but worker ids are used on both sides: ids can clash later."
    if result.problems:
        return "warning", f"{none}; see the warnings."
    return "ok", f"{none}."


def where(part: DuplicatesIn) -> str:
    """Return the sources of repeated ids as text."""
    return f"{part.sources[0]} alone" if len(part.sources) == 1 else " and ".join(part.sources)


def problem_text(problem: Problem) -> str:
    """Return what is wrong with values of a source, and what to do, without the examples."""
    count = f"{_count(problem.count, 'value')} " if problem.count else ""
    return f"{problem.source}: {count}{problem.text}." if problem.source else f"{problem.text}."


def shared_text(shared: SharedWorkers) -> str:
    """Return what is wrong with worker ids that two sources share."""
    one, other = shared.sources
    at_once = "none of them at the same time"
    if shared.at_once:
        at_once = (
            f"{'all' if shared.at_once == shared.workers else f'{shared.at_once:,}'} of them at the same time"
        )
    ranges = ", ".join(map(_range_text, shared.ranges))
    listed = sum(part.last - part.first + 1 for part in shared.ranges)
    more = f" and {shared.workers - listed:,} more" if listed < shared.workers else ""
    noun = "worker id is" if shared.workers == 1 else "worker ids are"
    return (
        f"{one} and {other}: {shared.workers:,} {noun} used by both, {at_once}: {ranges}{more}. "
        "Their next ids can be equal."
    )


def _range_text(part: WorkerRange) -> str:
    workers = str(part.first) if part.first == part.last else f"{part.first} to {part.last}"
    return f"{workers} of datacenter {part.datacenter}" if part.datacenter else workers


def _ids(count: int) -> str:
    return "1 id is" if count == 1 else f"{count:,} ids are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
