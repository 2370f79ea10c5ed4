"""Part `ids`: cost of an id: single and in batches, on 1 and 4 threads, in 1 and 2 processes, and the ceiling.

The contestants take turns in one run, round by round; each figure is divided by what time.time_ns() took in the
same round and process. Both implementations, and other Pythons if asked for, run in processes of their own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from scripts._bench.contestants import BUFFER, BY_LABEL, NOT_INSTALLABLE, OURS
from scripts._bench.measuring import BASE, UNCAPPED, in_turns, quartiles, ratios
from scripts._bench.worker import Worker

# what is measured in two processes at a time
IN_TWO = (BASE, "ids.next_id()", f"ids.fill() of {BUFFER:,}, an id", "uuid.uuid4()")
LAYOUTS = ("twitter", "default")


@contextlib.contextmanager
def workers(
    pythons: Sequence[str], *, peers_everywhere: bool = False, url: str = "", layout: str = UNCAPPED
) -> Iterator[list[Worker]]:
    """Yield workers: of this Python one for C and all peers, one for Python; of other *pythons* without the peers.

    Args:
        peers_everywhere: measure the peers on other *pythons*, too, where they are installed.
        url: of the Redis that the leases are in; default: in memory.
        layout: of the ids.
    """
    made: list[Worker] = []
    try:
        made.append(Worker("C", pure=False, only_ours=False, url=url, layout=layout))
        if made[0].said["implementation"] == "c":
            made.append(Worker("Python", pure=True, only_ours=True, url=url, layout=layout))
        else:
            made[0].label = "Python"
        for python in pythons:
            for pure in (False, True):
                only_ours = pure or not peers_everywhere
                worker = Worker("", python, pure=pure, only_ours=only_ours, url=url, layout=layout)
                made.append(worker)
                if IN_TWO[1] not in worker.said["labels"]:
                    why = worker.said["missing"].get(IN_TWO[1])
                    raise SystemExit(f"{python} makes no ids: {why}. Install snowredis there, or redis at least.")
                kind = {"c": "C", "python": "Python"}[worker.said["implementation"]]
                worker.label = f"{kind}, {worker.said['machine'].partition(',')[0]}"
                if kind == "Python":
                    break
        yield made
    finally:
        for worker in made:
            worker.stop()


def measure(*, quick: bool, pythons: Sequence[str] = ()) -> dict[str, Any]:
    rounds, seconds = (3, 0.0005) if quick else (31, 0.006)
    with workers(pythons) as running:
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
        return {
            "rounds": rounds,
            "machine": first["machine"],
            "free_threaded": {worker.label: worker.said["free_threaded"] for worker in running},
            "versions": first["versions"],
            "missing": first["missing"] | NOT_INSTALLABLE,
            "rows": rows,
            "two": _two_processes(running, quick=quick, seconds=seconds),
            "ceilings": _ceilings(running, quick=quick),
        }


def _two_processes(running: Sequence[Worker], *, quick: bool, seconds: float) -> list[dict[str, Any]]:
    """Measure each of IN_TWO in one process, and in two processes at the same time."""
    rows = []
    # long, so that the two begin together for all that matters
    rounds, seconds = (3, seconds) if quick else (11, 20 * seconds)
    for worker in running[:2]:
        twin = Worker(worker.label, pure=worker.label == "Python", only_ours=worker.label == "Python")
        try:
            labels = [label for label in IN_TWO if label in worker.said["labels"]]
            for one, label in itertools.product((worker, twin), labels):
                one.asked("prepare", label=label, seconds=seconds)
            alone: dict[str, list[float]] = {label: [] for label in labels}
            both: dict[str, list[float]] = {label: [] for label in labels}
            for label in in_turns(labels, rounds):
                alone[label].append(worker.asked("measure", label=label, threads=1))
                worker.ask("measure", label=label, threads=1)
                twin.ask("measure", label=label, threads=1)
                both[label].append((worker.answer() + twin.answer()) / 2)
        finally:
            twin.stop()
        rows += [
            {
                "by": worker.label if BY_LABEL[label].package == OURS else "",
                "label": label,
                "alone_ns": quartiles(alone[label]),
                "both_ns": quartiles(both[label]),
                "ratio": ratios(both[label], alone[label]),
                "per_second": 2e9 / quartiles(both[label])[1],
            }
            for label in labels
            if BY_LABEL[label].package == OURS or worker is running[0]
        ]
    return rows


def _ceilings(running: Sequence[Worker], *, quick: bool) -> list[dict[str, Any]]:
    rounds, seconds = (2, 0.1) if quick else (5, 0.5)
    cases = {
        f"{at} {layout}": (worker, layout) for layout, (at, worker) in itertools.product(LAYOUTS, enumerate(running))
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for name in in_turns(list(cases), rounds):
        worker, layout = cases[name]
        found[name].append(worker.asked("ceiling", layout=layout, seconds=seconds))
    return [
        {
            "by": worker.label,
            "layout": layout,
            "rate": quartiles([rate for rate, _ in found[name]]),
            "cpu": quartiles([cpu for _, cpu in found[name]]),
        }
        for name, (worker, layout) in cases.items()
    ]
