"""Part `ids`: cost of an id: single and in batches, on 1 and 4 threads.

The contestants take turns in one run, round by round; each figure is divided by what time.time_ns() took in the
same round and process. Both implementations run in processes of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from scripts._bench.contestants import BY_LABEL, NOT_INSTALLABLE, OURS
from scripts._bench.measuring import BASE, UNCAPPED, in_turns, quartiles, ratios
from scripts._bench.worker import Worker


@contextlib.contextmanager
def workers(*, url: str = "", layout: str = UNCAPPED) -> Iterator[list[Worker]]:
    """Yield a worker for C and all peers, and one for Python.

    Args:
        url: of the Redis that the leases are in; default: in memory.
        layout: of the ids.
    """
    made: list[Worker] = []
    try:
        made.append(Worker("C", pure=False, url=url, layout=layout))
        if made[0].said["implementation"] == "c":
            made.append(Worker("Python", pure=True, url=url, layout=layout))
        else:
            made[0].label = "Python"
        yield made
    finally:
        for worker in made:
            worker.stop()


def measure(*, quick: bool) -> dict[str, Any]:
    rounds, seconds = (2, 0.0002) if quick else (31, 0.006)
    with workers() as running:
        cases: list[tuple[Worker, str, int]] = []
        for worker in running:
            for label in worker.said["labels"]:
                worker.asked("prepare", label=label, seconds=seconds)
                cases += [(worker, label, threads) for threads in BY_LABEL[label].threads]
        found: dict[int, list[float]] = {at: [] for at in range(len(cases))}
        numbers = [str(at) for at in found]
        for number in in_turns(numbers, rounds):
            worker, label, threads = cases[int(number)]
            found[int(number)].append(worker.asked("measure", label=label, threads=threads))
        bases = {
            worker.label: found[at]
            for at, (worker, label, threads) in enumerate(cases)
            if label == BASE and threads == 1
        }
        alone = {(worker.label, label): found[at] for at, (worker, label, n) in enumerate(cases) if n == 1}
        rows = [
            {
                "by": worker.label if BY_LABEL[label].package == OURS else "",
                "of": worker.label,
                "label": label,
                "threads": threads,
                "ns": quartiles(found[at]),
                "ratio": ratios(found[at], bases[worker.label]),
                "to_one_thread": ratios(found[at], alone[worker.label, label]),
            }
            for at, (worker, label, threads) in enumerate(cases)
        ]
        first = running[0].said
        return {"rounds": rounds, "missing": first["missing"] | NOT_INSTALLABLE, "rows": rows}
