"""Chaos with real processes, then a whois of many ids, compared with the processes that really made them.

Every process records the ids that it makes. `certain` must always be right; `probable` may be wrong only in the way
that its reason names; `unknown` is always right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from snowredis.errors import SnowredisError
from snowredis.monitor.pool_reader import RedisPoolReader
from snowredis.monitor.whois import History, find_maker, read_history
from snowredis.worker_pool import WorkerPool
from tests.lab.chaos.driver import POOL, Fleet
from tests.lab.chaos.faults import FAULTS, Fault
from tests.lab.chaos.report import Plan
from tests.lab.chaos.runs import read_runs, read_status


@dataclass
class Score:
    """Results by certainty, and the wrong ones."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    wrong_probable: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.answers.total()


class WatchedFleet(Fleet):
    """A fleet whose history is read at every truce, after all faults, and at the end."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.looks: list[tuple[float, History]] = []

    def read(self) -> None:
        try:
            pool = WorkerPool(self.server.url, POOL)
            began_ms = self._elapsed_s() * 1000
            workers = [lease.worker for lease in pool.workers(alive_only=False)]
            self.looks.append((began_ms, read_history(RedisPoolReader(pool.client, POOL), workers)))
            pool.close()
        except SnowredisError:
            return

    def _truce(self) -> None:
        super()._truce()
        self.read()

    def _end(self) -> None:
        self.read()
        super()._end()


def run(
    plan: Plan,
    directory: Path,
    ids: int,
    say: Callable[[str], None] = lambda text: None,
    kinds: Sequence[Fault] = FAULTS,
) -> Score:
    """Run chaos once, then look up *ids* ids. Blocks for the length of the plan."""
    fleet = WatchedFleet(plan, directory, say, kinds)
    fleet.run()
    rng, score = random.Random(plan.seed), Score()
    made: list[tuple[int, int, int, int]] = []
    truths: dict[int, str] = {}
    for path in sorted(directory.glob("*.runs")):
        status = read_status(path)
        if status is not None:
            truths[status.pid] = f"pid {status.pid}, {status.kind}, slot {status.slot}, began at {status.started_ms} ms"
            made += [(at_ms, first, count, status.pid) for first, count, at_ms in read_runs(path).rows()]
    made.sort()
    share = max(1, ids // max(1, len(fleet.looks)))
    for number, (at_ms, history) in enumerate(fleet.looks):
        known = [row for row in made if row[0] < at_ms]
        wanted = share if number < len(fleet.looks) - 1 else max(share, ids - score.total)
        # most of them from the last 20 s, which the events still cover
        fresh = [row for row in known if row[0] > at_ms - 20_000]
        for _ in range(wanted if known else 0):
            _, first, count, pid = rng.choice(fresh if fresh and rng.random() < 0.7 else known)
            ask(history, first + rng.randrange(count), pid, score, truths[pid])
    return score


def ask(history: History, an_id: int, pid: int, score: Score, truth: str) -> None:
    """Look up one id and compare the result with *pid*, which really made it; *truth* describes that process."""
    whois = find_maker(history, an_id)
    score.answers[whois.certainty] += 1
    if whois.maker is not None and whois.maker.pid != pid:
        near = [
            f"    {one.id} {one.kind} {one.owner.text} from {one.from_ms} until {one.until_ms} {one.text}"
            for one in history.events
            if whois.parts is not None
            and one.worker == whois.parts.worker
            and abs(one.at_ms - whois.parts.timestamp_ms) < 9_000
        ]
        text = "\n".join([f"{an_id} of {truth}: {whois}", *near])
        (score.wrong if whois.certainty == "certain" else score.wrong_probable).append(text)
