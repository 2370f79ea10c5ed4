"""Text of the demo: the live display, the status line of plain output, and the verdict."""

from __future__ import annotations

from snowredis.cli.demo.check import Verdict
from snowredis.cli.demo.fleet import Member
from snowredis.cli.demo.scenario import Scenario, Snapshot
from snowredis.cli.output import Cell, Column, Line, duration, encodable, offset, pairs, printable, table

# log lines that are visible whatever the fleet's size; fewer where the terminal has fewer rows than usual
_MIN_LOG, _LOW_MIN_LOG, _LOW_HEIGHT = 8, 4, 24


def frame(scenario: Scenario, server: str, note: str, width: int, height: int) -> list[Line]:
    """Return the whole display in *height* lines."""
    members = _in_order(scenario.fleet.members)
    lines = [*_head(scenario, server), []]
    # other lines: the table's head, an empty line, and the note with one above it
    room = max(1, height - len(lines) - 4 - (_LOW_MIN_LOG if height < _LOW_HEIGHT else _MIN_LOG))
    shown = members if len(members) <= room else members[: max(1, room - 1)]
    lines += _table(scenario, shown, width)
    if len(shown) < len(members):
        lines.append([(f"… and {len(members) - len(shown)} more", "dim")])
    lines.append([])
    rest = height - len(lines) - 2
    lines += log_lines(scenario)[-rest:] if rest > 0 else []
    lines += [[]] * (height - len(lines) - 1)
    return [*lines, [(note, "dim")]]


def log_lines(scenario: Scenario) -> list[Line]:
    """Return the log of the scenario."""
    return [[(f"{line.at_s:6.1f} s  ", "dim"), (line.text, line.style)] for line in scenario.lines]


def status(scenario: Scenario) -> str:
    """Return the state of the fleet in one line."""
    running = sum(member.running for member in scenario.fleet.members)
    count, rate = _totals(scenario)
    info = scenario.snapshot.info
    return (
        f"{scenario.now_s:6.1f} s    {running} processes, {info.used} worker ids leased, "
        f"{count:,} ids, {rate:,} a second"
    )


def verdict_lines(scenario: Scenario, verdict: Verdict) -> list[Line]:
    """Return the result of the check of the ids, and how fast they were made."""
    since_s, until_s = scenario.making_s
    rate = round(verdict.ids / (until_s - since_s)) if until_s > since_s else 0
    members = scenario.fleet.members
    held = {worker for member in members for worker in member.workers}
    rows: list[tuple[str, str | Line]] = [
        (
            "ids",
            [(f"{verdict.ids:,}", "strong"), (f" by {len(members)} processes on {len(held)} worker ids", "")],
        ),
        (
            "speed",
            f"{rate:,} a second for {duration((until_s - since_s) * 1000)}; paced, to leave the CPU to others",
        ),
        ("duplicates", _count(verdict.duplicates, "every id was compared with every other")),
        ("wrong worker", _count(verdict.wrong_workers, "every id decodes to the worker id of its process")),
    ]
    lines = pairs(rows)
    lines += [[(f"  {printable(example, 200)}", "bad")] for example in verdict.examples]
    return lines


def _count(errors: int, explanation: str) -> Line:
    return [(f"{errors:,}", "bad" if errors else "good"), (f"  {explanation}", "dim")]


def _head(scenario: Scenario, server: str) -> list[Line]:
    count, rate = _totals(scenario)
    info = scenario.snapshot.info
    return [
        [("snowredis demo", "strong"), (f"  on its own {server}", "dim")],
        [
            (f"{scenario.now_s:.1f} s", "strong"),
            (f" of {scenario.plan.seconds:g} s   ", "dim"),
            (f"{info.used} worker ids leased   {count:,} ids   {rate:,} ids/s", ""),
        ],
    ]


def _totals(scenario: Scenario) -> tuple[int, int]:
    members = scenario.fleet.members
    return sum(member.recorded for member in members), sum(
        member.rate() for member in members if member.running
    )


def _in_order(members: list[Member]) -> list[Member]:
    """Sort by worker id, so that a new process is below the one whose worker id it took over."""
    return sorted(members, key=lambda member: (member.worker is None, member.worker or 0, member.number))


# --- the table -------------------------------------------------------------------------------------


def _table(scenario: Scenario, members: list[Member], width: int) -> list[Line]:
    # width of the wide form's columns, gaps included
    wide = width >= 106
    bar = 16 if wide else 8
    columns = [
        Column("worker id" if wide else "worker", right=True),
        Column("pid", right=True, min_width=7),
        Column("state", min_width=8),
        Column("lease left", min_width=bar + 6),
        Column("heartbeat", right=True),
        Column("clock", right=True, min_width=8),
        Column("namespace" if wide else "ns", right=True),
        Column("ids/s", right=True, min_width=6),
        Column("ids", right=True, min_width=10 if wide else 9),
    ]
    rows = [_row(scenario, member, bar) for member in members]
    return table(columns, rows, width, gap=2 if wide else 1)


def _row(scenario: Scenario, member: Member, bar: int) -> list[Cell]:
    snapshot = scenario.snapshot
    record = snapshot.of(member)
    alive = member.running and record is not None and record.alive
    state, style = _state(member, record is not None)
    beat = clock = ""
    if alive and record is not None:
        beat = duration(max(0, snapshot.info.now_ms - record.renewed_ms))
        clock = offset(record.clock_offset_ms)
    quiet = "" if member.running else "dim"
    return [
        ("-" if member.worker is None else str(member.worker), "strong" if member.running else "dim"),
        (str(member.pid), quiet),
        (state, style),
        _lease(scenario, snapshot, member, bar),
        (beat, quiet),
        (clock, "warn" if clock.startswith("-") and len(clock) > 6 else quiet),
        (str(member.namespace), "note" if member.namespace else quiet),
        (f"{member.rate():,}" if member.running else "", quiet),
        (f"{member.recorded:,}", quiet),
    ]


def _state(member: Member, has_record: bool) -> tuple[str, str]:
    if member.killed:
        return "killed", "bad"
    if not member.running:
        return ("ended", "dim") if member.closed else ("failed", "bad")
    if member.stopping:
        return "ending", "warn"
    return ("alive", "good") if member.workers and has_record else ("starting", "dim")


def _lease(scenario: Scenario, snapshot: Snapshot, member: Member, bar: int) -> Cell:
    """Return the remaining time of a lease, as a bar and in seconds, or why there is none."""
    left_ms = snapshot.lease_left_ms(member)
    if not left_ms:
        taken_over = any(
            other.worker == member.worker and other.running and other is not member
            for other in scenario.fleet.members
        )
        return ("" if member.worker is None else "taken over" if taken_over else "free"), "dim"
    part = min(1.0, left_ms / 1000 / scenario.plan.ttl_s)
    full = ("━" if encodable("━") else "=") * round(part * bar)
    style = "bad" if member.killed else "good" if part > 0.5 else "warn"
    return f"{full:<{bar}} {duration(left_ms)}", style
