"""`bench`: measure the cost of an id on this machine, compared with time.time_ns() and uuid. Needs no Redis.

The statements run in turns, many short rounds of each, so that a busy machine slows all of them alike. The ratios can
be compared between machines, the nanoseconds cannot. `scripts/bench` measures with the same functions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from snowredis.cli.options import Command, Parser
from snowredis.cli.output import Cell, Column, Line, print_json, table, write

if TYPE_CHECKING:
    from snowredis.snowflake.generator import SnowflakeGenerator

# length of one measurement: long compared with a thread's start, short compared with other load of the machine
ROUND_S = 0.005


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer rounds: about a second, coarser")
    parser.add_argument("--json", action="store_true", help="one object")


def subjects(ids: SnowflakeGenerator) -> dict[str, Subject]:
    """Return what the command measures, by the names that it prints."""
    import uuid
    from array import array

    names = {"ids": ids, "time": time, "uuid": uuid, "buffer": array("q", bytes(8_000_000))}
    statements = [BASE, "ids.next_id()", "uuid.uuid4()"]
    # new in Python 3.14
    statements += ["uuid.uuid7()"] if hasattr(uuid, "uuid7") else []
    measured = {statement: Subject(statement, names) for statement in statements}
    measured |= {f"{statement}, 4 threads": Subject(statement, names, threads=4) for statement in statements}
    return measured | {
        "ids.next_ids(1000), an id": Subject("ids.next_ids(1000)", names, per_call=1000),
        "ids.fill(1,000,000), an id": Subject("ids.fill(buffer)", names, per_call=1_000_000),
    }


def run(args: argparse.Namespace) -> None:
    from snowredis.snowflake.fast_path import IMPLEMENTATION
    from snowredis.testing import memory_pool

    rounds, round_s, ceiling_s = (5, ROUND_S / 5, 0.2) if args.quick else (41, ROUND_S, 2.0)
    with memory_pool().connect(layout=UNCAPPED) as ids:
        ids.next_id()
        measured = subjects(ids)
        # each of four threads makes as many calls as one alone, so that starting it hardly counts
        calls = {name: calls_in(replace(subject, threads=1), round_s) for name, subject in measured.items()}
        results: dict[str, list[float]] = {name: [] for name in measured}
        for name in in_turns(list(measured), rounds):
            results[name].append(measured[name].ns(calls[name]))
    rate, cpu = ceiling("twitter", ceiling_s)
    if args.json:
        report = {
            "machine": this_machine(),
            "implementation": IMPLEMENTATION,
            "rounds": rounds,
            "ns": {name: _rounded(quartiles(times)) for name, times in results.items()},
            "ratio": {name: _rounded(ratios(times, results[BASE])) for name, times in results.items()},
            "twitter": {"share_of_ceiling": round(rate, 4), "share_of_cpu": round(cpu, 4)},
        }
        print_json(report)
    else:
        write(_report(IMPLEMENTATION, rounds, results, rate, cpu))


def _rounded(numbers: Iterable[float]) -> list[float]:
    return [round(number, 4) for number in numbers]


def _report(
    implementation: str, rounds: int, results: Mapping[str, Sequence[float]], rate: float, cpu: float
) -> list[Line]:
    kind = {"c": "in C", "python": "in Python"}.get(implementation, implementation)
    rows: list[list[Cell]] = []
    for name, times in results.items():
        (low, median, high), (_, ratio, _) = quartiles(times), ratios(times, results[BASE])
        digits, style = 2 if high < 10 else 1, "strong" if name.startswith("ids.") else ""
        spread = f"{low:,.{digits}f} – {high:,.{digits}f}"
        to_base = f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"
        rows.append([(name, style), f"{median:,.{digits}f}", spread, to_base])
    columns = [Column(f"snowredis {kind}", shrinks=True), Column("ns", right=True)]
    columns += [Column("quartiles", right=True), Column(f"to {BASE}", right=True)]
    how = f"{rounds} rounds in turns; ns of wall time for one id, and its ratio to reading the clock"
    return [
        [(this_machine(), "")],
        [(how, "dim")],
        [],
        *table(columns, rows),
        [],
        [(f"layout twitter, one thread: {rate:.1%} of its 4,096 ids a ms, on {cpu:.0%} of a CPU", "")],
    ]


# --- measuring --------------------------------------------------------------------------------------

# 4,194,304 ids a ms, so that the generator is measured and not the ceiling of a layout
UNCAPPED = "40/0/0/1/22"
BASE = "time.time_ns()"


@dataclass(frozen=True, slots=True)
class Subject:
    """A statement to measure.

    Attributes:
        statement: one Python statement.
        names: its globals.
        threads: how many threads run it at once.
        per_call: how many ids it makes.
    """

    statement: str
    names: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    per_call: int = 1

    def ns(self, calls: int) -> float:
        """Let each thread run the statement *calls* times; return the wall time of one id, ns."""
        import timeit

        timers = [timeit.Timer(self.statement, globals=dict(self.names)) for _ in range(self.threads)]
        if self.threads == 1:
            took_s = timers[0].timeit(calls)
        else:
            took_s = _side_by_side_s([lambda timer=timer: timer.timeit(calls) for timer in timers])
        return took_s * 1e9 / (calls * self.per_call * self.threads)


def calls_in(subject: Subject, seconds: float) -> int:
    """Return how many calls of *subject* take about *seconds*. Blocks for up to about that long."""
    calls = 1
    while (took_s := subject.ns(calls) * calls * subject.per_call * subject.threads / 1e9) < seconds / 4:
        calls *= 4 if took_s < seconds / 16 else 2
    return max(1, round(calls * seconds / took_s))


def _side_by_side_s(works: Sequence[Any]) -> float:
    """Run the functions *works* at once, each in a thread; return the seconds until the last one ends."""
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
    """Yield *names* *rounds* times, each round rotated by one, so that each name is first equally often."""
    for turn in range(rounds):
        at = turn % len(names)
        yield from [*names[at:], *names[:at]]


def quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median, upper quartile."""
    import statistics

    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, median, high


def ceiling(layout: str, seconds: float) -> tuple[float, float]:
    """Make ids in one thread for *seconds*; return rate / ceiling of the layout, and the share of one CPU used."""
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


def ratios(figures: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of the ratios *figures* / *base*, round by round."""
    return quartiles([figure / of for figure, of in zip(figures, base, strict=True)])


def this_machine() -> str:
    """Return one line that describes the Python and the machine."""
    import os
    import platform
    import sysconfig

    gil = "no GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else "GIL"
    python = f"{platform.python_implementation()} {platform.python_version()} ({gil})"
    return f"{python}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"


BENCH = Command(
    "bench",
    "measure what an id costs on this machine",
    """Single ids and batches, one thread and four, in turns with time.time_ns() and uuid. Needs no Redis and
takes about 10 seconds. The ratios can be compared between machines, the nanoseconds cannot.""",
    [
        ("snowredis bench", "the implementation in use"),
        ("SNOWREDIS_PURE=1 snowredis bench", "the implementation in Python"),
        ("snowredis bench --quick --json", "about a second, for programs"),
    ],
    add_arguments,
    run,
)
