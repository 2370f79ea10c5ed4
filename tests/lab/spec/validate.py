"""Let TLC decide, step by step, whether the specification allows the runs of a log; show the first step it does not.

Many runs are checked at once, since TLC takes a second to start: runs whose pools have the same constants.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.spec.log import Entry, read_log
from tests.lab.spec.steps import SHARED_TOKEN, Step, Steps, steps_of
from tests.lab.spec.tlc import HERE, Outcome, run

# steps that one run of TLC checks at most
BATCH_STEPS = 30_000
# TLC's own limit is higher; a file with longer definitions is slow to parse
STEPS_A_DEFINITION = 500
LIMIT_S = 1800
# constants that each run has for itself, of Ledger.tla, and of Pool.tla, with where the log has those of its pool
OF_A_RUN = ("Procs", "Wids", "Ord", "Outage")
OF_A_POOL = {
    # RS + SLACK is failover_slack
    "TTL": "ttl_ms", "G": "outage_ms", "SK": "max_clock_lead_ms", "RS": "failover_slack_ms", "SLACK": "",
}  # fmt: skip
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


def check(runs: Sequence[Steps], *, explain: bool = True, long: bool = False) -> Iterator[Verdict]:
    """Yield a verdict on each run, in any order.

    Args:
        explain: look for the first step that is not allowed.
        long: whether it may take minutes.
    """
    for batch in _batches(runs):
        outcome = _tlc([runs[number] for number in batch], workers=2, long=long)
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


def _batches(runs: Sequence[Steps]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for number in range(len(runs)):
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


def _tlc(runs: Sequence[Steps], *, workers: int = 1, show: int = 0, long: bool = False) -> Outcome:
    config = (HERE / "Trace.cfg").read_text() + f"  Show = {show}\n"
    modules = {
        "TraceData": module_of(runs),
        "Ledger": _of_runs("Ledger", OF_A_RUN),
        "Pool": _of_runs("Pool", OF_A_POOL),
    }
    return run("Trace", config, modules=modules, workers=workers, limit_s=LIMIT_S, long=long)


def _of_runs(module: str, names: Iterable[str]) -> str:
    """Return a module with constants that each run has for itself: TraceData defines them."""
    text = (HERE / f"{module}.tla").read_text()
    for name in names:
        text, count = re.subn(rf"(?<=[ ,]){name}, *(?=.*\\\*)", "", text, count=1)
        if count != 1:
            raise ValueError(f"{module}.tla has no constant {name}")
    return text.replace("EXTENDS Integers, FiniteSets, TLC\n", "EXTENDS Integers, FiniteSets, TLC, TraceData\n")


# --- the module ----------------------------------------------------------------------------------------


def module_of(runs: Sequence[Steps]) -> str:
    """Return the module TraceData, with the steps of *runs*."""
    lines = ["---- MODULE TraceData ----", "EXTENDS Integers", "VARIABLE run  \\* which of Runs"]
    names = []
    for number, steps in enumerate(runs, 1):
        parts, lanes = [], [*_ordinary(steps), *["out"] * (steps.header["outage_ms"] > 0)]
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
    without = (", ".join(f'"{p}"' for p in sorted(steps.without)) for steps in runs)
    lines.append(f"Without == << {', '.join('{' + items + '}' for items in without)} >>")
    lines.append(f"PartSize == {STEPS_A_DEFINITION}")
    lines.append(f"Constants == << {', '.join(map(_constants, runs))} >>")
    lines += (f"{name} == Constants[run].{name}" for name in (*OF_A_RUN, *OF_A_POOL, "Servers"))
    lines.append("====\n")
    return "\n".join(lines)


def _ordinary(steps: Steps) -> list[str]:
    # the first one has this name in Ledger.tla
    return ["a", *(f"l{number}" for number in range(1, steps.header["lanes"]))]


def _constants(steps: Steps) -> str:
    """Return what one run has: the constants of its pool, its lanes, processes, worker ids and servers."""
    values = {name: str(steps.header[of]) if of else "0" for name, of in OF_A_POOL.items()}
    workers = {step["w"] for step in steps.steps if "w" in step} or {0}
    sets = (steps.slots or ["c1"], [f"w{worker}" for worker in workers], _ordinary(steps))
    values |= {name: _set(items) for name, items in zip(OF_A_RUN, sets, strict=False)}
    values |= {"Outage": str(steps.header["outage_ms"] > 0).upper(), "Servers": _set(steps.servers or ["none"])}
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in values.items()) + "]"


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in sorted(names)) + "}"


def _tla(step: Step, lanes: Sequence[str]) -> str:
    return "[" + ", ".join(f"{name} |-> {_value(name, value, lanes)}" for name, value in step.items()) + "]"


def _value(name: str, value: Any, lanes: Sequence[str]) -> str:
    if name == "w":
        return f'"w{value}"'
    if name == "l":
        return f'"{lanes[value]}"'
    if isinstance(value, list):
        return "[" + ", ".join(f"{lane} |-> {item}" for lane, item in zip(lanes, value, strict=True)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def unchecked(logs: Sequence[Sequence[Entry]], runs: Sequence[Steps]) -> list[str]:
    """Return what is not checked in *logs*, or only with an assumption, as lines."""
    ends = [entries[-1] for entries in logs if entries[-1]["do"] == "end" and entries[-1].get("early")]
    scripts = sum(entry["do"] == "run" for entries in logs for entry in entries)
    after = sum(end["after"] for end in ends)
    lines = [f"{len(ends):,} of the logs end early, so {after:,} of {scripts + after:,} scripts are not checked"]
    lines += (f"    {count:,} × {why}" for why, count in Counter(end["early"] for end in ends).most_common())
    return [*lines, f"assumed {sum(steps.shared_tokens for steps in runs):,} times: {SHARED_TOKEN}"]


# --- for people ----------------------------------------------------------------------------------------


def validate(path: Path) -> int:
    """Validate the runs of a log and print the result; return the exit code."""
    began_s = time.monotonic()
    logs = list(read_log(path))
    runs = [steps_of(entries) for entries in logs]
    total = sum(len(steps.steps) for steps in runs)
    print(f"{len(runs):,} runs, {total:,} steps", flush=True)
    print("\n".join(unchecked(logs, runs)), flush=True)
    refused: list[Verdict] = []
    for done, verdict in enumerate(check(runs, long=True), 1):
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
