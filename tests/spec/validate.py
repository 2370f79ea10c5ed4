"""Let TLC decide, step by step, whether the specification allows the runs of a log; show the first step it does not.

Many runs are checked at once, since TLC takes a second to start: runs whose pools have the same constants.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.spec.log import Entry, read_log
from tests.spec.order import MOST_UNSEEN, in_order
from tests.spec.steps import Step, Steps, steps_of
from tests.spec.tlc import HERE, Outcome, run

# steps that one run of TLC checks at most
BATCH_STEPS = 30_000
# TLC's own limit is higher; a file with longer definitions is slow to parse
STEPS_A_DEFINITION = 500
LIMIT_S = 1800
# states that are shown of a step that is not allowed
MOST_STATES = 4


@dataclass(frozen=True)
class Verdict:
    """Verdict on one run.

    Attributes:
        number: of the run in the log, from 0.
        steps: how many it has.
        accepted: whether the specification allows all of them.
        refused: the number of the first that it does not allow, from 1.
        text: that step, and the states, for people.
    """

    number: int
    header: Entry
    steps: int
    accepted: bool
    refused: int = 0
    text: str = ""


def constants_of(header: Entry) -> tuple[int, ...]:
    return tuple(
        header[name]
        for name in (
            "ttl_ms",
            "max_clock_lead_ms",
            "redis_skew_ms",
            "failover_slack_ms",
            "lanes",
        )
    )


def check(
    runs: Sequence[Steps], *, workers: int = 2, limit_s: float = LIMIT_S, explain: bool = True
) -> Iterator[Verdict]:
    """Yield a verdict on each run, in any order. *explain*: look for the first step that is not allowed."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, steps in enumerate(runs):
        groups[constants_of(steps.header)].append(number)
    for numbers in groups.values():
        # runs of one size together, since each has as many processes as the largest
        numbers.sort(key=lambda number: len(runs[number].slots))
        for batch in _batches(numbers, runs):
            outcome = _tlc([runs[number] for number in batch], workers=workers, limit_s=limit_s)
            accepted = {int(found) for found in re.findall(r'<<"accepted", (\d+)>>', outcome.output)}
            if outcome.result != "pass":
                raise RuntimeError(f"TLC: {outcome.result}\n{outcome.output[-3000:]}")
            for place, number in enumerate(batch, 1):
                steps = runs[number]
                if place in accepted:
                    yield Verdict(number, steps.header, len(steps.steps), True)
                elif explain:
                    yield _explain(number, steps)
                else:
                    yield Verdict(number, steps.header, len(steps.steps), False)


def _batches(numbers: Iterable[int], runs: Sequence[Steps]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for number in numbers:
        if batch and size + len(runs[number].steps) > BATCH_STEPS:
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += len(runs[number].steps)
    if batch:
        yield batch


def _explain(number: int, steps: Steps) -> Verdict:
    """Find the first step that is not allowed, and what the specification says at that place."""
    alone = _tlc([steps])
    refused = alone.depth
    step = steps.steps[refused - 1]
    shown = _tlc([steps], show=refused)
    states = re.findall(r'<<\s*"(before|after)",(.*?)>>\n(?=<<|[A-Z0-9])', shown.output, re.DOTALL)
    lines = [f"step {refused} of {len(steps.steps)}: {step}"]
    # several where TLC had a choice before
    for name, text in dict.fromkeys(states[:MOST_STATES]):
        lines.append(f"  the specification {name} it: {' '.join(text.split())}")
    if not any(name == "after" for name, _ in states):
        lines.append("  the specification has no such step there")
    return Verdict(number, steps.header, len(steps.steps), False, refused, "\n".join(lines))


def _tlc(runs: Sequence[Steps], *, workers: int = 1, limit_s: float = LIMIT_S, show: int = 0) -> Outcome:
    config = (HERE / "Trace.cfg").read_text() + (HERE / "LeaseAsBuilt.overrides").read_text()
    ttl, lead, skew, slack, _ = constants_of(runs[0].header)
    config += f"  TTL = {ttl}\n  SK = {lead}\n  RS = {skew}\n  SLACK = {slack}\n  Show = {show}\n"
    # a state is known by its run and its step, unless there is a choice
    if not any(step["op"] == "unseen" for steps in runs for step in steps.steps):
        config += "VIEW Place\n"
    return run("Trace", config, modules={"TraceData": module_of(runs)}, workers=workers, limit_s=limit_s)


# --- the module ----------------------------------------------------------------------------------------


def module_of(runs: Sequence[Steps]) -> str:
    """Return the module TraceData, with the steps of *runs*."""
    lanes = runs[0].header["lanes"]
    procs = {name for steps in runs for name in steps.slots} or {"c1"}
    servers = {name for steps in runs for name in steps.servers} or {"none"}
    workers = {step["w"] for steps in runs for step in steps.steps if "w" in step} or {0}
    lines = ["---- MODULE TraceData ----", "EXTENDS Integers"]
    names = []
    for number, steps in enumerate(runs, 1):
        parts = []
        for start in range(0, len(steps.steps), STEPS_A_DEFINITION):
            name = f"R{number}x{start}"
            items = ",\n".join(_tla(step, lanes) for step in steps.steps[start : start + STEPS_A_DEFINITION])
            lines.append(f"{name} == <<\n{items}>>")
            parts.append(name)
        names.append(parts)
    lines.append(f"Runs == << {', '.join('<<' + ', '.join(parts) + '>>' for parts in names)} >>")
    lines.append(f"Sizes == << {', '.join(str(len(steps.steps)) for steps in runs)} >>")
    late = (", ".join(f'<<"{p}", {dep}>>' for p, dep in sorted(steps.late)) for steps in runs)
    lines.append(f"Late == << {', '.join('{' + items + '}' for items in late)} >>")
    lines.append(f"PartSize == {STEPS_A_DEFINITION}")
    lines.append(f"TraceProcs == {_set(procs)}")
    lines.append(f"Servers == {_set(servers)}")
    lines.append(f"TraceWids == {_set(f'w{worker}' for worker in workers)}")
    lines.append(f"TraceOrd == {_set(map(_lane, range(lanes)))}")
    lines.append("====\n")
    return "\n".join(lines)


def _lane(number: int) -> str:
    return f"l{number}"


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in sorted(names)) + "}"


def _tla(step: Step, lanes: int) -> str:
    return "[" + ", ".join(f"{name} |-> {_value(name, value)}" for name, value in step.items()) + "]"


def _value(name: str, value: Any) -> str:
    if name == "w":
        return f'"w{value}"'
    if name == "l":
        return f'"{_lane(value)}"'
    if name == "any":
        return "<<" + ", ".join(_tla(item, 0) for item in value) + ">>"
    if isinstance(value, list):
        return "[" + ", ".join(f"{_lane(lane)} |-> {item}" for lane, item in enumerate(value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def unchecked(logs: Sequence[Sequence[Entry]]) -> list[str]:
    """Return what is not checked in *logs*, or only with an assumption, as lines."""
    ends = [entries[-1] for entries in logs if entries[-1]["do"] == "end" and entries[-1].get("early")]
    scripts = sum(entry["do"] == "run" for entries in logs for entry in entries)
    after = sum(end["after"] for end in ends)
    lines = [f"{len(ends):,} of the logs end early, so {after:,} of {scripts + after:,} scripts are not checked"]
    lines += (f"    {count:,} × {why}" for why, count in Counter(end["early"] for end in ends).most_common())
    assumed = sum(entry["do"] == "unseen" for entries in logs for entry in entries)
    if assumed:
        lines.append(f"{assumed:,} scripts left no reply: each may be any of up to {MOST_UNSEEN} requests, or none")
    return lines


# --- for people ----------------------------------------------------------------------------------------


def validate(path: Path) -> int:
    """Validate the runs of a log and print the result; return the exit code."""
    began_s = time.monotonic()
    logs = [in_order(entries) if entries[0]["kind"] == "chaos" else entries for entries in read_log(path)]
    runs = [steps_of(entries) for entries in logs]
    total = sum(len(steps.steps) for steps in runs)
    print(f"{len(runs):,} runs, {total:,} steps", flush=True)
    print("\n".join(unchecked(logs)), flush=True)
    refused: list[Verdict] = []
    for done, verdict in enumerate(check(runs), 1):
        if not verdict.accepted:
            refused.append(verdict)
            header = verdict.header
            print(f"\nnot allowed: run {verdict.number} ({header.get('seed')}, {header.get('classes')})")
            print(verdict.text, flush=True)
        print(f"\r{done:,} checked, {len(refused):,} not allowed", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(
        f"{len(runs) - len(refused):,} of {len(runs):,} runs are allowed, step by step, in "
        f"{time.monotonic() - began_s:.0f} s"
    )
    return 1 if refused else 0
