"""Explore schedules of processes of a host: python -m tests.host.explore SCENARIO [--without PROTECTION] [--seconds S].

Prints one line of JSON: how many runs and steps, and the first schedule that repeats an id, or loses a lease without a
reason. Exit code 1 if there is one. The same arguments give the same runs, except for how many fit into the time.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.host import stepping

if TYPE_CHECKING:
    from tests.host.stage import Cast, Schedule, Stage

# the last step of a plan, and the steps of a process at which it is stopped
END = 1 << 30
MOST_STOPS = 60


class Scenario(NamedTuple):
    """What each process does, from which state on (see Stage.prepare()), with how many worker ids."""

    cast: Cast
    state: str = "open"
    workers: int = 1


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name."""
    from tests.host.stage import TTL_MS, Action

    take, beat, close = Action("take", 1), Action("beat"), Action("close")
    soon, late, away = Action("wait", 5), Action("wait", TTL_MS + 100), Action("away", 1)
    back, behind = Action("back", 30), Action("back", 150)
    far = Action("back", 2 * TTL_MS)
    other = (late, take, take)
    return {
        "two takers": Scenario({"a": (take, take), "b": (take, take)}),
        "three takers": Scenario({"a": (take,), "b": (take,), "c": (take,)}),
        "starts": Scenario({"a": (take, take), "b": (take, take), "other": (take, take)}, ""),
        "renewals": Scenario({"a": (take, beat, take), "b": (beat, take, take), "other": other}, "claimed"),
        "quiet renewals": Scenario({"a": (beat, beat), "b": (beat, beat), "c": (beat, beat)}),
        "a lost lease": Scenario({"a": (take, beat, beat, take), "other": other, "b": (beat, take)}, "open", 2),
        "an end and a start": Scenario({"a": (take, close), "new b": (soon, take, take), "other": (take, take)}),
        "two ends": Scenario({"a": (take, close), "b": (take, close), "other": (soon, take, take)}),
        "an end in another thread": Scenario(
            {"a": (take, take), "thread": (close,), "other": (behind, take)},
            "claimed",
        ),
        "a clock set back": Scenario(
            {"a": (back, take, Action("back", -40), take), "b": (Action("back", -5), take), "other": other}
        ),
        "back and forth": Scenario(
            {"a": (back, take, Action("back", -40), take), "b": (Action("back", -5), take, take)}
        ),
        "another worker id": Scenario({"a": (take, *(far, take) * 5), "b": (take,)}, "alone", 2),
        "outage": Scenario({"a": (away, late, take), "b": (beat, take, take), "other": other}),
    }


# where no lease may be lost, since only the time of waiting for a stopped process passes
QUIET = ("two takers", "three takers", "quiet renewals", "back and forth")


def without(protection: str) -> None:
    """Switch a protection of the Python code off."""
    from snowredis.snowflake import host_lease, host_members
    from snowredis.snowflake.host_page import HEADER, LIMIT, SEALED_BIT, WORD, HostPage

    page: Any = HostPage
    credentials: Any = host_lease.HostCredentials
    fence, write = page._fence, credentials._write

    def unfenced(offset_off: int) -> Callable[..., None]:
        def run(self: HostPage, offset: int, bits: int, turn_bits: int, turn: Any) -> None:
            if offset != offset_off:
                fence(self, offset, bits, turn_bits, turn)

        return run

    def set_limit(self: HostPage, limit_ms: int) -> None:
        while not self.swap(LIMIT, self.load(LIMIT), limit_ms):
            pass

    def same_seal(self: HostPage, step: int, sequence_mask: int, tick: int) -> int:
        word = self.load(WORD)
        while not word & SEALED_BIT and not self.swap(WORD, word, word | SEALED_BIT):
            word = self.load(WORD)
        return word | SEALED_BIT

    def no_mine(self: HostPage) -> Any:
        return self._turn

    if protection == "fence-limit":
        page._fence = unfenced(LIMIT)
        page.set_limit = set_limit
    elif protection == "header-exchanged":
        swap = page.swap

        def store(self: HostPage, offset: int, old: int, new: int) -> bool:
            return bool(swap(self, offset, self.load(offset) if offset == HEADER else old, new))

        page.swap = store
    elif protection == "new-seal":
        page.seal = same_seal
    elif protection == "seal-first":
        credentials._write = lambda self, change, *, seal: write(self, change, seal=False)
        host_members.HostAllocator.seal = lambda self: None  # type: ignore[method-assign]
    elif protection == "open-if-sealed":

        def open_anyway(self: HostPage, sealed: int, an_id: int) -> None:
            while not self.swap(WORD, self.load(WORD), an_id):
                pass

        page.open = open_anyway
    elif protection == "marks-of-lanes":
        credentials.marks = lambda self, found: tuple(found["marks_ms"])
    elif protection == "note-release":
        credentials.note_release = lambda self, token, sent: None
    elif protection == "release-sealed":
        host_members.HostAllocator.seal = lambda self: None  # type: ignore[method-assign]
    elif protection == "pending-first":
        credentials.write_pending = lambda self, renewal_id: None
    elif protection == "void":
        from snowredis.snowflake.lease import LeaseSlot

        LeaseSlot.make_void = lambda self: None  # type: ignore[method-assign]
    elif protection == "seal":
        page.seal = lambda self, *_: self.load(WORD)
    else:
        raise LookupError(protection)


PROTECTIONS = (
    "fence-limit",
    "header-exchanged",
    "new-seal",
    "seal-first",
    "open-if-sealed",
    "marks-of-lanes",
    "note-release",
    "release-sealed",
    "pending-first",
    "void",
    "seal",
    *stepping.BROKEN,
)


def all_schedules() -> Iterator[tuple[Schedule, list[int]]]:
    """Iterate over all schedules: each with the list to which it appends its choices."""
    path: list[int] = []
    sizes: list[int] = []
    while True:
        taken: list[int] = []
        sizes.clear()
        begin = tuple(path)

        def choose(
            order: list[int],
            _: dict[int, str],
            taken: list[int] = taken,
            begin: tuple[int, ...] = begin,
        ) -> int | None:
            index = begin[len(taken)] if len(taken) < len(begin) else 0
            taken.append(index)
            sizes.append(len(order))
            return order[index]

        yield choose, taken
        path = list(taken)
        while path and path[-1] + 1 >= sizes[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


def some_schedules(count: int, seed: int) -> Iterator[tuple[Schedule, list[Any]]]:
    """Iterate over schedules without an end, of *count* processes.

    First one process is stopped, before each of its writes, while the others go on. Then the first one and the second
    one are, each before each of its writes. Then any, at random; and each sixth schedule changes often, and kills.
    """
    from tests.host.stage import at_random, planned

    orders = [*itertools.permutations(range(count))]
    for step, order in itertools.product(range(MOST_STOPS), orders):
        first, second, *others = order
        for ends in ((second, *others, first), (second, first, *others)):
            plan = ((first, step), *((each, END) for each in ends))
            yield planned(plan), [*plan]
    for step, second_step in itertools.product(range(MOST_STOPS), repeat=2):
        for ends in itertools.permutations((0, *range(2, count))):
            plan = ((0, step), (1, second_step), *((each, END) for each in ends), (1, END))
            yield planned(plan), [*plan]
    source = random.Random(seed)
    for number in itertools.count():
        if number % 6 == 0:
            yield at_random(number, source.choice((0.02, 0.1, 0.5))), [number]
            continue
        stops = tuple((source.randrange(count), source.randrange(MOST_STOPS)) for _ in range(3))
        plan = (*stops, *((each, END) for each in source.choice(orders)))
        yield planned(plan), [*plan]


def explore(name: str, seconds: float, seed: int, plan: list[tuple[int, int]]) -> dict[str, Any]:
    """Run the schedules of one scenario, or only that of *plan*; return what was found."""
    from tests.host.stage import Stage, planned

    scenario = scenarios()[name]
    every = "takers" in name
    runs = ids = 0
    errors = Counter[str]()
    kept: list[Stage] = []
    until_s = time.monotonic() + seconds
    found: dict[str, Any] = {"scenario": name, "complete": False}
    schedules = all_schedules() if every else some_schedules(len(scenario.cast), seed)
    for choose, choices in [(planned(tuple(plan)), [*plan])] if plan else schedules:
        stage = Stage(scenario.cast, choose, scenario.workers)
        stage.prepare(scenario.state)
        stage.run()
        # a killed process does nothing more, not even when it is collected
        kept.append(stage)
        runs, ids = runs + 1, ids + len(stage.made)
        errors += stage.errors
        if stage.repeated or (name in QUIET and (stage.lost or stage.errors)):
            found |= {"failed": choices, "repeated": stage.repeated, "lost": stage.lost}
            break
        if time.monotonic() > until_s:
            break
    else:
        found["complete"] = True
    return found | {"runs": runs, "ids": ids, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    parser.add_argument("--without", default="")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan", type=json.loads, default=[], help="pairs of a process and a number of writes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broken = args.without if args.without in stepping.BROKEN else ""
        set_hook = stepping.load(Path(directory), broken)
        logging.disable(logging.CRITICAL)
        os.environ["SNOWREDIS_CRASH_RECORDS"] = "off"
        gc.disable()
        from tests.host import stage

        set_hook(stage.step_of_running)
        if args.without and not broken:
            without(args.without)
        found = explore(args.scenario, args.seconds, args.seed, args.plan)
    print(json.dumps(found), flush=True)
    # without the end of greenlets that were killed
    os._exit(1 if "failed" in found else 0)


if __name__ == "__main__":
    main()
