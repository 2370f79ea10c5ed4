"""Play many cases, in a process that may hang or die."""

import json
import os
import random
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Self

from tests.lab.interrupts.actions import ACTIONS, PAUSED
from tests.lab.interrupts.cases import Case, Outcome
from tests.lab.interrupts.operations import OPERATIONS
from tests.support.programs import ROOT

# longer than any wait in a case
LIMIT_S = 30.0
# no operation has so many bytecodes
MOST_POINTS = 100_000
# a case that hangs takes half a minute; after so many of one kind the rest are skipped
MOST_DEATHS = 2
# bytes of stderr that are shown with a failure
MOST_SAID = 20_000


class Explorer:
    """A player of cases, started again when a case hung or killed it. Use as a context manager."""

    def __init__(self, url: str, *, pure: bool = False, always_redis: bool = False) -> None:
        self._arguments = [sys.executable, "-m", "tests.lab.interrupts.player", url]
        self.pure = pure
        # a directory of its own: how many bytecodes a suspension has depends on the records of other processes
        self._records = tempfile.TemporaryDirectory()
        more = {"SNOWREDIS_PURE": "1" if pure else "", "SNOWREDIS_CRASH_RECORDS": self._records.name}
        self._environment = {**os.environ, **more, "PYTHONPATH": str(ROOT)}
        self._prefix = "redis " if always_redis else ""
        self._player: subprocess.Popen[str] | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the explorer
        self.played = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        self._errors.close()
        self._records.cleanup()

    def _end(self) -> None:
        player, self._player = self._player, None
        if player is not None:
            player.kill()
            player.communicate()

    def _running(self) -> subprocess.Popen[str]:
        if self._player is None:
            self._errors.seek(0)
            self._errors.truncate()
            self._player = subprocess.Popen(
                self._arguments,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        return self._player

    def play(self, case: Case) -> Outcome:
        player = self._running()
        self.played += 1
        try:
            assert player.stdin is not None
            player.stdin.write(f"{self._prefix}{case}\n")
            player.stdin.flush()
            answer = _line(player)
        except BrokenPipeError:
            answer = ""
        except BaseException:
            # a test's time limit: the outcome may still come, and must not be taken for that of another case
            self._end()
            raise
        if answer:
            outcome = Outcome(**json.loads(answer))
            if outcome.failures:
                # tracebacks of its children, among other things
                outcome.failures[-1] += "\n" + self._said()
            return outcome
        self._end()
        return Outcome(str(case), -1, [""], ["hangs or dies:\n" + self._said()])

    def _said(self) -> str:
        """Return the end of what the player and its children printed. They go on writing at their own position."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), MOST_SAID, max(0, size - MOST_SAID)).decode(errors="replace")

    def sweep(
        self,
        operation: str,
        action: str,
        *,
        elsewhere: bool = False,
        first: int = 0,
        step: int = 1,
        end: int = MOST_POINTS,
    ) -> Iterator[Outcome]:
        """Play every point of *operation*, or every *step*-th, until its last one or *end*."""
        deaths = 0
        for at in range(first, end, step):
            outcome = self.play(Case(operation, ((action, at),), elsewhere))
            if not outcome.fired:
                return
            yield outcome
            deaths += outcome.points < 0
            if deaths >= MOST_DEATHS:
                return


def _line(player: subprocess.Popen[str]) -> str:
    """Return the next line of its output; "" if none comes."""
    assert player.stdout is not None
    if not select.select([player.stdout], [], [], LIMIT_S)[0]:
        return ""
    return player.stdout.readline()


def random_case(rng: random.Random) -> Case:
    """Return one to three interruptions of one operation, at random points; one may resume another thread."""
    operation = rng.choice(list(OPERATIONS))
    names = [name for name, what in ACTIONS.items() if OPERATIONS[operation].forks or not what.forks]
    # short operations have some hundred bytecodes, long ones some thousand
    most = rng.choice((150, 800, 2500))
    chosen = [(rng.choice(names), rng.randrange(most)) for _ in range(rng.choice((1, 2, 2, 3)))]
    # one fork at most: each process reports about one child
    forks = [pair for pair in chosen if ACTIONS[pair[0]].forks]
    chosen = [pair for pair in chosen if pair not in forks[1:]]
    if rng.random() < 0.3:
        paused = f"paused:{rng.choice(list(PAUSED))}:{rng.randrange(rng.choice((12, 200, 1500)))}"
        chosen[0] = (paused, chosen[0][1])
    return Case(operation, tuple(sorted(chosen, key=lambda pair: pair[1])))
