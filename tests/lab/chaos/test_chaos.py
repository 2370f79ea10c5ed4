"""A short chaos run with every kind of fault, and tests that the checker detects repeated ids.

A whois of many ids of the run is compared with the processes that made them: `certain` must always be right.

Real processes and a real redis-server; scripts/chaos.py does the same for longer.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from snowredis.core.presets import resolve_layout
from snowredis.errors import SnowredisError
from snowredis.monitor.history import History, find_maker, read_history
from snowredis.monitor.pool_reader import PoolReader
from snowredis.worker_pool import WorkerPool
from tests.lab.chaos.checker import check
from tests.lab.chaos.driver import POOL, Fleet, Plan
from tests.lab.chaos.faults import FAULTS, Begun, Fault
from tests.lab.chaos.runs import COLUMNS, PAGE, DisorderError, Recorder, read_runs, read_status, runs_of
from tests.lab.chaos.slots import NODE_PACKAGE, Slot
from tests.support.servers import PROGRAM
from tests.support.waiting import becomes_true

LAYOUT = "41/0/2/3/16"
BASE = resolve_layout(LAYOUT).compose(tick=59_000_000_000, worker=3, sequence=0)

needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")


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


@needs_redis
@pytest.mark.timeout(240)
def test_a_fleet_under_every_kind_of_fault_repeats_no_id_and_recovers_and_whois_names_no_wrong_process(
    short_path: Path,
) -> None:
    plan = Plan(seed=20, processes=4, faults=45, seconds=6, ttl_s=1.5, truce_every=30, layout=LAYOUT, rest_s=0.02)
    fleet = WatchedFleet(plan, short_path)
    report = fleet.run()
    verdict = check(short_path, LAYOUT)
    assert verdict.good, verdict.problems
    assert report.problems == []
    found = whois_of(fleet.looks, short_path, 1_000)
    assert found.wrong == []
    assert 0 < found.answers["certain"] <= found.answers.total() > 900
    # a process that is killed between the two has written down what it did not count any more
    assert verdict.ids >= report.ids > 100_000
    assert set(report.children) > {"worker"}
    if report.skipped:
        pytest.skip(f"0 ids were repeated, but clocks could not be stepped: {report.skipped}")
    assert report.fired.total() == 45
    assert set(report.fired) == {fault.name for fault in FAULTS}


def freeze_and_replace(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Freeze one worker, kill the other a little later: whoever starts in its place gets the frozen one's id."""
    frozen, killed = fleet.slots
    frozen.signal(signal.SIGSTOP)
    # the frozen one's lease has ended then, and the other one's has not
    time.sleep(fleet.ttl_s * 1.1)
    killed.signal(signal.SIGKILL)
    killed.restart()
    becomes_true(killed.last_ms, 20.0)
    frozen.signal(signal.SIGCONT)
    return Begun(excuses="all")


@needs_redis
@pytest.mark.timeout(240)
def test_leases_that_trust_their_ttl_are_caught_repeating_ids(short_path: Path) -> None:
    # two worker ids for two processes
    layout = "41/0/0/1/16"
    kinds = [Fault("freeze and replace", "redis", freeze_and_replace)]
    # on a busy machine the heartbeat comes first more often
    for seed in range(25):
        directory = short_path / str(seed)
        directory.mkdir()
        plan = Plan(seed, processes=2, faults=1, seconds=3.0, ttl_s=1.2, layout=layout, plain_ttl=True, rest_s=0.005)
        Fleet(plan, directory, kinds=kinds).run()
        verdict = check(directory, layout)
        if verdict.repeated:
            assert "pid" in verdict.problems[0]
            return
    pytest.fail("no id was repeated, though nobody looked at a reservation")


@needs_redis
@pytest.mark.timeout(400)
@pytest.mark.skipif(not NODE_PACKAGE.is_dir(), reason="node-redis is missing: npm install --prefix examples")
@pytest.mark.parametrize("also", ["node", "node tests/lab/chaos/printer.mjs"], ids=["recorded", "printed"])
def test_a_client_of_another_language_is_judged_by_its_ids(short_path: Path, also: str) -> None:
    plan = Plan(seed=3, processes=4, faults=12, seconds=5, ttl_s=1.5, layout=LAYOUT, rest_s=0.02, also=also)
    report = Fleet(plan, short_path).run()
    verdict = check(short_path, LAYOUT)
    assert verdict.good, verdict.problems
    assert report.problems == []
    for slot in ("02", "03"):
        assert any(list(read_runs(path).rows()) for path in short_path.glob(f"{slot}-*.runs"))


@needs_redis
def test_a_client_whose_processes_print_the_same_ids_is_caught(short_path: Path) -> None:
    also = "sh -c 'seq 4000000000 4000010000; exec sleep 60'"
    Fleet(Plan(seed=5, processes=4, faults=0, seconds=1, ttl_s=1.5, layout=LAYOUT, also=also), short_path).run()
    assert check(short_path, LAYOUT).repeated >= 10_000


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # the path of a socket has 107 characters at the most
    return tmp_path_factory.mktemp("c")


# --- the checker -----------------------------------------------------------------------------------


def write(directory: Path, *runs: tuple[int, int], slot: int = 0) -> Path:
    """Write the file of one process."""
    before = set(directory.glob("*.runs"))
    Recorder(directory, slot, time.monotonic_ns()).record(list(runs))
    (path,) = set(directory.glob("*.runs")) - before
    return path


@pytest.mark.parametrize(
    ("first", "count", "repeated"),
    [(BASE, 1, 1), (BASE + 99, 2, 1), (BASE + 10, 5, 5), (BASE - 5, 200, 100), (BASE + 999, 3, 1)],
)
def test_one_repeated_id_is_found_wherever_it_hides(tmp_path: Path, first: int, count: int, repeated: int) -> None:
    # the ids are out of order, as after a step of the clock
    write(tmp_path, (BASE + 999, 1), (BASE, 100), (BASE + 500, 1), slot=0)
    write(tmp_path, (BASE + 200, 100), slot=1)
    write(tmp_path, (first, count), slot=2)
    verdict = check(tmp_path, LAYOUT)
    assert verdict.repeated == repeated
    (problem,) = verdict.problems[-1:]
    assert "worker of slot 0" in problem
    assert "worker of slot 2" in problem
    assert f"pid {os.getpid()}" in problem
    assert "worker 3, namespace 0" in problem or first < BASE


def test_a_run_inside_a_long_one_hides_no_later_repetition(tmp_path: Path) -> None:
    write(tmp_path, (BASE, 1000), slot=0)
    write(tmp_path, (BASE + 10, 1), (BASE + 900, 10), slot=1)
    assert check(tmp_path, LAYOUT).repeated == 11


def test_ids_that_were_counted_and_are_not_recorded_are_said(tmp_path: Path) -> None:
    path = write(tmp_path, (BASE, 100), (BASE + 200, 7))
    os.truncate(path, PAGE + 8 * COLUMNS + 8)
    (problem,) = check(tmp_path, LAYOUT).problems
    assert "107 ids were counted, but only 100 are recorded" in problem


def test_a_run_that_leaves_its_tick_is_said(tmp_path: Path) -> None:
    write(tmp_path, (BASE + 65_000, 1_000))
    (problem,) = check(tmp_path, LAYOUT).problems
    assert "are not of one tick" in problem


def test_batches_are_cut_into_runs_exactly() -> None:
    assert runs_of([*range(5, 10), 12, *range(14, 30), 31]) == [(5, 5), (12, 1), (14, 16), (31, 1)]
    assert runs_of([7]) == [(7, 1)]
    assert runs_of([]) == []


@pytest.mark.parametrize(
    "batch", [[1, 1], [3, 2], [1, 3, 2, 4], [1, 2, 2, 4, 5], [9, 1, 2, 3], [1, 2, 9, 4], [5, 6, 7, 7]]
)
def test_a_batch_that_does_not_increase_is_refused(batch: list[int]) -> None:
    with pytest.raises(DisorderError):
        runs_of(batch)
