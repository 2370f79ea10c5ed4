"""A whois of many ids of a chaos run, compared with the processes that really made them.

Every process records the ids that it makes. `certain` must always be right; `probable` may be wrong only in the way
that its reason names; `unknown` is always right.
"""

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from snowredis.errors import SnowredisError
from snowredis.monitor.pool_reader import PoolReader
from snowredis.monitor.whois import History, find_maker, read_history
from snowredis.worker_pool import WorkerPool
from tests.lab.chaos.driver import POOL, Fleet
from tests.lab.chaos.runs import read_runs, read_status


class Score(NamedTuple):
    """Results by certainty, and those that are certain and wrong."""

    answers: Counter[str]
    wrong: list[str]


class WatchedFleet(Fleet):
    """A fleet whose history is read at every truce, after all faults, and at the end."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.looks: list[tuple[float, History]] = []

    def _read(self) -> None:
        with contextlib.suppress(SnowredisError), contextlib.closing(WorkerPool(self.server.url, POOL)) as pool:
            began_ms = self._elapsed_s() * 1000
            workers = [lease.worker for lease in pool.workers(alive_only=False)]
            reader = PoolReader(pool.client, POOL)
            self.looks.append((began_ms, read_history(reader, reader.info(), workers)))

    def _truce(self) -> None:
        super()._truce()
        self._read()

    def _end(self) -> None:
        self._read()
        super()._end()


def whois_of(looks: list[tuple[float, History]], directory: Path, ids: int) -> Score:
    """Look up about *ids* ids of the processes that wrote into *directory*, in what was read."""
    rng, score = random.Random(ids), Score(Counter(), [])
    made: list[tuple[int, int, int, int]] = []
    for path in sorted(directory.glob("*.runs")):
        if status := read_status(path):
            made += [(at_ms, first, count, status.pid) for first, count, at_ms in read_runs(path).rows()]
    seen = [(at_ms, history, [row for row in made if row[0] < at_ms]) for at_ms, history in looks]
    # none had made an id at the first look
    seen = [each for each in seen if each[2]]
    for at_ms, history, known in seen:
        # most of them from the last 20 s, which the events still cover
        fresh = [row for row in known if row[0] > at_ms - 20_000]
        for _ in range(ids // len(seen)):
            _, first, count, pid = rng.choice(fresh if fresh and rng.random() < 0.7 else known)
            whois = find_maker(history, an_id := first + rng.randrange(count))
            score.answers[whois.certainty] += 1
            if whois.certainty == "certain" and whois.maker is not None and whois.maker.pid != pid:
                score.wrong.append(f"{an_id} of pid {pid}: {whois}")
    return score
