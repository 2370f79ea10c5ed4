"""`bench`: what an id costs here, against reading the clock and against uuid. Needs no Redis, no network, no peer.

Everything is measured in turns, many short rounds of each, so that a busy machine slows all of it: ratios
count, nanoseconds belong to the machine. scripts/bench measures with what stands here, too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command
from snowredis.cli.output import Cell, Column, Line, table, terminal_width, write

if TYPE_CHECKING:
    from snowredis.runtime.generator import Generator

# 4,194,304 ids a ms: the generator is measured, not the ceiling of a layout
UNCAPPED = "40/0/0/1/22"
BASE = "time.time_ns()"
# one measurement takes so long: long against a thread's start, short against what else a machine does
ROUND_S = 0.005


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "bench",
        summary="measure what an id costs on this machine",
        about=(
            "Single ids and batches, one thread and four, in turns with time.time_ns() and uuid. Needs no Redis "
            "and takes about 10 seconds. Ratios count; nanoseconds belong to the machine and to what else it does."
        ),
        examples=[
            ("snowredis bench", "the implementation that is in use"),
            ("SNOWREDIS_PURE=1 snowredis bench", "the one in Python"),
            ("snowredis bench --quick --json", "a second, for programs"),
        ],
        run=_bench,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: about a second, coarser")
    parser.add_argument("--json", action="store_true", help="an object")


@dataclass(frozen=True, slots=True)
class Subject:
    """A statement to measure, as a program says it; *per_call* ids each time."""

    statement: str
    names: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    per_call: int = 1

    def ns(self, calls: int) -> float:
        """Wall time of one id, ns, when each of the threads runs the statement *calls* times."""
        import timeit

        timers = [timeit.Timer(self.statement, globals=dict(self.names)) for _ in range(self.threads)]
        if self.threads == 1:
            return timers[0].timeit(calls) * 1e9 / (calls * self.per_call)
        return (
            _side_by_side_s([lambda timer=timer: timer.timeit(calls) for timer in timers])
            * 1e9
            / (calls * self.per_call * self.threads)
        )

    def calls_in(self, seconds: float) -> int:
        """How many calls take about *seconds*."""
        calls = 1
        while (took_s := self.ns(calls) * calls * self.per_call * self.threads / 1e9) < seconds / 4:
            calls *= 4 if took_s < seconds / 16 else 2
        return max(1, round(calls * seconds / took_s))


def _side_by_side_s(works: Sequence[Any]) -> float:
    """Seconds from the moment that all of *works* are let go, in a thread each, to the end of the last."""
    import threading

    gate = threading.Barrier(len(works) + 1)

    def run(work: Any) -> None:
        gate.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gate.wait()
    began_s = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began_s


def in_turns(names: Sequence[str], rounds: int) -> Iterable[str]:
    """*names* again and again, so that nobody always comes after the same other."""
    for turn in range(rounds):
        at = turn % len(names)
        yield from [*names[at:], *names[:at]]


def quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    import statistics

    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, median, high


def ceiling(layout: str, seconds: float) -> tuple[float, float]:
    """One thread that makes nothing but ids: its rate as a share of the layout's ceiling, and of one CPU."""
    from snowredis.core.presets import resolve_layout
    from snowredis.testing import memory_pool

    used = resolve_layout(layout)
    with memory_pool().connect(layout=used) as ids:
        subject = Subject("ids.next_id()", {"ids": ids})
        for _ in range(3):
            # from the end of one tick's ids to the end of another's
            subject.ns(used.sequences)
        made, wall_s, cpu_s = 0, time.perf_counter(), time.process_time()
        until_s = wall_s + seconds
        while time.perf_counter() < until_s:
            subject.ns(used.sequences)
            made += used.sequences
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return made / wall_s / used.ids_per_second, cpu_s / wall_s


def subjects(ids: Generator) -> dict[str, Subject]:
    """What the command measures, by the names that it prints."""
    import uuid
    from array import array

    names = {"ids": ids, "time": time, "uuid": uuid, "buffer": array("q", bytes(8_000_000))}
    statements = [BASE, "ids.next_id()", "uuid.uuid4()"]
    # of Python 3.14
    statements += ["uuid.uuid7()"] if hasattr(uuid, "uuid7") else []
    found = {statement: Subject(statement, names) for statement in statements}
    found |= {f"{statement}, 4 threads": Subject(statement, names, threads=4) for statement in statements}
    return found | {
        "ids.next_ids(1000), an id": Subject("ids.next_ids(1000)", names, per_call=1000),
        "ids.fill(1,000,000), an id": Subject("ids.fill(buffer)", names, per_call=1_000_000),
    }


def _bench(args: argparse.Namespace) -> int:
    from snowredis.runtime.fast_path import IMPLEMENTATION
    from snowredis.testing import memory_pool

    rounds, round_s, ceiling_s = (5, ROUND_S / 5, 0.2) if args.quick else (41, ROUND_S, 2.0)
    with memory_pool().connect(layout=UNCAPPED) as ids:
        ids.next_id()
        measured = subjects(ids)
        # each thread does as much as one alone, so that its start counts for little
        calls = {
            name: Subject(subject.statement, subject.names, per_call=subject.per_call).calls_in(round_s)
            for name, subject in measured.items()
        }
        found: dict[str, list[float]] = {name: [] for name in measured}
        for name in in_turns(list(measured), rounds):
            found[name].append(measured[name].ns(calls[name]))
    rate, cpu = ceiling("twitter", ceiling_s)
    if args.json:
        print(
            json.dumps(
                {
                    "machine": this_machine(),
                    "implementation": IMPLEMENTATION,
                    "rounds": rounds,
                    "ns": {name: _rounded(quartiles(figures)) for name, figures in found.items()},
                    "ratio": {
                        name: _rounded(ratios(figures, found[BASE])) for name, figures in found.items()
                    },
                    "twitter": {"share_of_ceiling": round(rate, 4), "share_of_cpu": round(cpu, 4)},
                }
            )
        )
    else:
        write(_report(IMPLEMENTATION, rounds, found, rate, cpu))
    return ExitCode.OK


def ratios(figures: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Quartiles of *figures* over *base*, each against what was measured in its own round."""
    return quartiles([figure / of for figure, of in zip(figures, base, strict=True)])


def _rounded(figures: Iterable[float]) -> list[float]:
    return [round(figure, 4) for figure in figures]


def _report(
    implementation: str, rounds: int, found: Mapping[str, Sequence[float]], rate: float, cpu: float
) -> list[Line]:
    kind = {"c": "in C", "python": "in Python"}.get(implementation, implementation)
    rows: list[list[Cell]] = []
    for name, figures in found.items():
        low, median, high = quartiles(figures)
        _, ratio, _ = ratios(figures, found[BASE])
        rows.append(
            [
                (name, "strong" if name.startswith("ids.") else ""),
                f"{median:,.2f}" if high < 10 else f"{median:,.1f}",
                f"{low:,.2f} – {high:,.2f}" if high < 10 else f"{low:,.1f} – {high:,.1f}",
                f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}",
            ]
        )
    columns = [Column(f"snowredis {kind}", shrinks=True), Column("ns", right=True)]
    columns += [Column("quartiles", right=True), Column(f"to {BASE}", right=True)]
    return [
        [(this_machine(), "")],
        [(f"{rounds} rounds in turns; ns of wall time for one id, and how many times the clock's", "dim")],
        [],
        *table(columns, rows, terminal_width()),
        [],
        [(f"layout twitter, one thread: {rate:.1%} of its 4,096 ids a ms, on {cpu:.0%} of a CPU", "")],
    ]


def this_machine() -> str:
    """The Python and the machine, in a line."""
    import os
    import platform
    import sysconfig

    gil = "no GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else "GIL"
    python = f"{platform.python_implementation()} {platform.python_version()} ({gil})"
    return f"{python}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"
