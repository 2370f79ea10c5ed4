"""`bench`: measure the cost of an id on this machine, compared with time.time_ns() and uuid. Needs no Redis.

snowredis.timing does the measuring.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser
from snowredis.cli.output import Cell, Column, Line, table, terminal_width, write
from snowredis.timing import (
    BASE,
    UNCAPPED,
    Subject,
    calls_in,
    ceiling,
    in_turns,
    quartiles,
    ratios,
    this_machine,
)

if TYPE_CHECKING:
    from snowredis.snowflake.generator import Generator

# length of one measurement: long compared with a thread's start, short compared with other load of the machine
ROUND_S = 0.005

SUMMARY = "measure what an id costs on this machine"
ABOUT = """Single ids and batches, one thread and four, in turns with time.time_ns() and uuid. Needs no Redis and
takes about 10 seconds. The ratios can be compared between machines, the nanoseconds cannot."""
EXAMPLES = [
    ("snowredis bench", "the implementation in use"),
    ("SNOWREDIS_PURE=1 snowredis bench", "the implementation in Python"),
    ("snowredis bench --quick --json", "about a second, for programs"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer rounds: about a second, coarser")
    parser.add_argument("--json", action="store_true", help="one object")


def subjects(ids: Generator) -> dict[str, Subject]:
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


def run(args: argparse.Namespace) -> int:
    from snowredis.snowflake.fast_path import IMPLEMENTATION
    from snowredis.testing import memory_pool

    rounds, round_s, ceiling_s = (5, ROUND_S / 5, 0.2) if args.quick else (41, ROUND_S, 2.0)
    with memory_pool().connect(layout=UNCAPPED) as ids:
        ids.next_id()
        measured = subjects(ids)
        # each of four threads makes as many calls as one alone, so that starting it hardly counts
        calls = {
            name: calls_in(Subject(subject.statement, subject.names, per_call=subject.per_call), round_s)
            for name, subject in measured.items()
        }
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
        print(json.dumps(report))
    else:
        write(_report(IMPLEMENTATION, rounds, results, rate, cpu))
    return ExitCode.OK


def _rounded(numbers: Iterable[float]) -> list[float]:
    return [round(number, 4) for number in numbers]


def _report(
    implementation: str, rounds: int, results: Mapping[str, Sequence[float]], rate: float, cpu: float
) -> list[Line]:
    kind = {"c": "in C", "python": "in Python"}.get(implementation, implementation)
    rows: list[list[Cell]] = []
    for name, times in results.items():
        (low, median, high), (_, ratio, _) = quartiles(times), ratios(times, results[BASE])
        digits = 2 if high < 10 else 1
        rows.append(
            [
                (name, "strong" if name.startswith("ids.") else ""),
                f"{median:,.{digits}f}",
                f"{low:,.{digits}f} – {high:,.{digits}f}",
                f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}",
            ]
        )
    columns = [Column(f"snowredis {kind}", shrinks=True), Column("ns", right=True)]
    columns += [Column("quartiles", right=True), Column(f"to {BASE}", right=True)]
    return [
        [(this_machine(), "")],
        [
            (
                f"{rounds} rounds in turns; ns of wall time for one id, and its ratio to reading the clock",
                "dim",
            )
        ],
        [],
        *table(columns, rows, terminal_width()),
        [],
        [(f"layout twitter, one thread: {rate:.1%} of its 4,096 ids a ms, on {cpu:.0%} of a CPU", "")],
    ]
