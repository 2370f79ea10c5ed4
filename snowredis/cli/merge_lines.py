"""Text of `merge plan` and `merge apply`: what a plan says, what applying it will do, and how far it is."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from snowredis.cli.output import (
    Column,
    Line,
    duration,
    fitted,
    is_terminal,
    printable,
    table,
    terminal_width,
    wrapped,
)

if TYPE_CHECKING:
    from snowredis.merge.apply.run import Databases
    from snowredis.merge.journal import Run
    from snowredis.merge.plan.plan_file import DomainPlan, Plan

# values a second that small machines rewrite; only for an estimate before anything was measured
_RATE = 5_000
# seconds between two lines where lines are not overwritten
_EVERY_S = 10.0


class StepLine:
    """One line on stderr that says what is being done; in a file, a line every ten seconds."""

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stderr)
        self._shown_s = 0.0
        self._total = 0
        self._began: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def start(self, total: int) -> None:
        """Count from here: *total* is where report() will end, by estimate."""
        self._total, self._began = total, None

    def report(self, text: str, done: int = 0) -> None:
        """Say what is being done, and how much of the total is."""
        now_s = time.monotonic()
        if now_s - self._shown_s < (0.1 if self._terminal else _EVERY_S):
            return
        self._shown_s = now_s
        if done and self._began is None:
            self._began = (now_s, done)
        line = printable(text) + self._rate(now_s, done)
        if self._terminal:
            print(
                f"\r\x1b[K{fitted(line, (terminal_width() or 80) - 1)}", end="", file=sys.stderr, flush=True
            )
        else:
            print(line, file=sys.stderr, flush=True)

    def _rate(self, now_s: float, done: int) -> str:
        if not done:
            return ""
        text = f": {done:,} of {max(self._total, done):,}"
        if self._began is not None and now_s - self._began[0] > 1 and done > self._began[1]:
            rate = (done - self._began[1]) / (now_s - self._began[0])
            left_ms = max(0, self._total - done) / rate * 1000
            text += f", {rate:,.0f}/s, {duration(left_ms)} left"
        return text

    def clear(self) -> None:
        """Remove the line."""
        if self._terminal and self._shown_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def lines_of_plan(plan: Plan) -> list[Line]:
    """Return what a plan says, for a person."""
    lines: list[Line] = [
        [("ids stay in    ", "dim"), (printable(plan.kept), "")],
        [("ids change in  ", "dim"), (printable(plan.changed), "")],
        [],
    ]
    columns = [
        Column("ids of", shrinks=True),
        Column("kept", right=True),
        Column("changed", right=True),
        Column("clash", right=True),
        Column("new ids", right=True),
        Column("how", shrinks=True),
    ]
    lines += table(
        columns,
        [
            (
                printable(domain.name),
                f"{domain.kept:,}",
                f"{domain.changed:,}",
                (f"{domain.clashes:,}", "warn" if domain.clashes and domain.kind != "shared" else ""),
                f"{domain.renamed:,}",
                _how(domain),
            )
            for domain in plan.domains
        ],
        terminal_width(),
    )
    for domain in plan.domains:
        others = [column for column in domain.columns if column != domain.name]
        if domain.renamed and others:
            lines += wrapped(
                [(f"  {printable(domain.name)} is also in ", "dim")], printable(", ".join(others))
            )
    for conflict in plan.conflicts:
        lines += wrapped([("not copied: ", "bad")], printable(f"{conflict.table}: {conflict.text}"))
    for warning in plan.warnings:
        lines += wrapped([("note: ", "warn")], printable(warning))
    return lines


def _how(domain: DomainPlan) -> str:
    if domain.kind == "counter":
        return f"+ {domain.offset:,}"
    if domain.kind == "layout":
        return "same time, an unused worker id" + (
            f" of {len(domain.lanes)}" if len(domain.lanes) > 1 else ""
        )
    return "the same rows in both" if domain.kind == "shared" else "stay: none clashes"


def lines_of_dry_run(
    plan: Plan, databases: Databases, batch_rows: int, begun: Run | None, *, copy: bool
) -> list[Line]:
    """Return what applying a plan will do, for a person.

    Args:
        begun: how far an earlier process got.
    """
    values = sum(found.rewritten for found in plan.tables)
    columns = [
        Column("table", shrinks=True),
        Column("rows", right=True),
        Column("values to change", right=True),
        Column("rows there", right=True),
    ]
    rows = [
        (
            printable(found.name),
            f"{found.rows:,}",
            f"{found.rewritten:,}",
            "no such table" if found.kept_rows is None else f"{found.kept_rows:,}",
        )
        for found in plan.tables
        if copy or found.rewritten
    ]
    lines: list[Line] = [
        [],
        *(
            table(
                columns if copy else columns[:3],
                rows if copy else [row[:3] for row in rows],
                terminal_width(),
            )
        ),
    ]
    # an id domain has batches of its own
    batches = max(len(databases.renamed), -(-values // batch_rows))
    text = (
        f"{values:,} values in about {batches:,} transactions of at most {batch_rows:,}; about "
        f"{duration(values / _RATE * 1000)} at {_RATE:,} a second, which is an assumption: the rate is shown as it goes"
    )
    lines += [[], *wrapped([("changes  ", "dim")], text)]
    lines += wrapped([("locks    ", "dim")], databases.support.locks)
    check = "both databases are compared again; nothing is changed if they differ from the plan"
    if begun is not None:
        done = (
            "all ids are changed" if begun.state == "done" else f"{begun.changed:,} values are changed so far"
        )
        check = f"an earlier process began with this plan: {done}; it is continued"
    lines += wrapped([("before   ", "dim")], check)
    lines += wrapped(
        [("after    ", "dim")], "checksums of all rows are compared, and all foreign keys are checked"
    )
    if copy:
        total = sum(found.rows for found in plan.tables)
        lines += wrapped(
            [("copy     ", "dim")],
            f"{total:,} rows into {printable(plan.kept)}, parents first, then each is compared; nothing is removed "
            f"from {printable(plan.changed)}",
        )
    return lines
