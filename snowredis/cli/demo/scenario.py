"""The steps of the demo, in order, and the log of what was observed.

Each step waits for its precondition, does one thing and logs the observed result, not the intended one. It draws
nothing; show.py calls step() repeatedly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from snowredis.cli.demo.fleet import Fleet, Member, Message
from snowredis.cli.output import duration, printable
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo

# for processes that all start at once on two cores
_START_TIMEOUT_S = 20.0
# for steps that take milliseconds on an idle machine
_STEP_TIMEOUT_S = 5.0


# earliest time of each step, as a part of the demo's length; a step also waits for those before it
_KILL_AT, _STEP_CLOCK_AT = 0.25, 0.36
# the rest is for stopping the processes and checking their ids
_END_AT = 0.91
# far more than a generator waits for
_CLOCK_STEP_MS = -5000


@dataclass(frozen=True, slots=True)
class Plan:
    """Length of the demo and size of its fleet."""

    seconds: float
    workers: int

    @property
    def ttl_s(self) -> float:
        """Lease time of the pool: short enough to see a dead worker's lease end."""
        return min(4.0, self.seconds / 5)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the pool at one moment, with all worker ids that were ever used."""

    at_s: float
    info: PoolInfo
    workers: dict[int, WorkerInfo]

    def of(self, member: Member) -> WorkerInfo | None:
        """Return the record of the worker id of *member*; None if another process has claimed it since."""
        record = self.workers.get(-1 if member.worker is None else member.worker)
        return record if record is not None and record.pid == member.pid else None

    def lease_left_ms(self, member: Member) -> int:
        """Return how long the lease of *member* lasts; 0 if it ended, or there is none."""
        record = self.of(member)
        if record is None:
            return 0
        return max(0, record.lease_left_ms - round((time.monotonic() - self.at_s) * 1000))


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the demo's log."""

    at_s: float
    text: str
    style: str = ""


@dataclass(slots=True)
class Scenario:
    """Sequence of steps on a fleet, and its log.

    Attributes:
        snapshot: the newest state of the pool.
        failed: whether a process ended by itself, or did not release its worker id.
        making_s: times of the first and of the last ids, from the start.
    """

    fleet: Fleet
    plan: Plan
    began_s: float
    snapshot: Snapshot
    lines: list[LogLine] = field(default_factory=list)
    failed: bool = False
    making_s: tuple[float, float] = (0.0, 0.0)
    _steps: Iterator[None] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self._steps = self._all_steps()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def log(self, text: str, style: str = "") -> None:
        self.lines.append(LogLine(self.now_s, text, style))

    def step(self, messages: list[Message], snapshot: Snapshot) -> bool:
        """Do what is due, and return whether the scenario goes on. Does not block."""
        self.snapshot = snapshot
        for member, word, text in messages:
            self._log_message(member, word, text)
        return next(self._steps, self) is None

    def _log_message(self, member: Member, word: str, text: str) -> None:
        """Log a message that no step waits for."""
        if word == "error":
            self.log(f"pid {member.pid} makes no ids: {printable(text, 200)}", "bad")
        elif word == "claimed" and len(member.workers) > 1:
            self.log(f"pid {member.pid} goes on with worker id {text}", "warn")
        elif word == "ended" and not member.killed and not member.closed:
            self.failed = True
            reason = printable(self.fleet.last_log_line(member), 200)
            self.log(f"pid {member.pid} ended by itself (exit code {text}): {reason}", "bad")

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> Iterator[None]:
        """Wait for *condition*, at most *timeout_s*."""
        deadline_s = self.now_s + timeout_s
        while not condition() and self.now_s < deadline_s:
            yield

    def _until_part(self, part: float) -> Iterator[None]:
        """Wait until *part* of the demo's length has passed."""
        return self._wait(self.plan.seconds * part - self.now_s)

    def _wait(self, seconds: float) -> Iterator[None]:
        return self._until(lambda: False, seconds)

    # --- the steps ---------------------------------------------------------------------------------

    def _all_steps(self) -> Iterator[None]:
        yield from self._start()
        able = [member for member in self.fleet.members if member.running and member.workers]
        able.sort(key=lambda member: member.worker or 0)
        if len(able) > 1:
            victim, stepped = able[len(able) // 2], able[-1] if len(able) > 2 else able[0]
            yield from self._until_part(_KILL_AT)
            killed_s = self._kill(victim)
            yield from self._until_part(_STEP_CLOCK_AT)
            yield from self._step_clock(stepped)
            yield from self._replace(victim, killed_s)
        yield from self._until_part(_END_AT)
        yield from self._end()

    def _start(self) -> Iterator[None]:
        members = [self.fleet.start() for _ in range(self.plan.workers)]
        self.log(f"{len(members)} processes start; leases last {duration(self.plan.ttl_s * 1000)}")
        yield from self._until(lambda: any(member.workers for member in members), _START_TIMEOUT_S)
        self.making_s = (self.now_s, self.now_s)
        yield from self._until(lambda: all(m.workers or not m.running for m in members), _START_TIMEOUT_S)
        claimed = sorted(member.workers[0] for member in members if member.workers)
        if not claimed:
            self.failed = True
            return
        self.log(f"they claimed worker ids {_listed(claimed)}")

    def _kill(self, victim: Member) -> float:
        left = duration(self.snapshot.lease_left_ms(victim))
        self.fleet.kill(victim)
        self.log(f"kill -9 worker {victim.worker} (pid {victim.pid}), whose lease would end in {left}", "bad")
        return self.now_s

    def _step_clock(self, member: Member) -> Iterator[None]:
        before = member.namespace
        self.fleet.step_clock(member, _CLOCK_STEP_MS)
        self.log(f"clock of worker {member.worker} set back by {duration(-_CLOCK_STEP_MS)}", "warn")
        yield from self._until(lambda: member.namespace != before, _STEP_TIMEOUT_S)
        if member.namespace != before:
            self.log(f"it goes on in namespace {member.namespace}, where no id was made yet", "note")
        else:
            self.log(f"it is still in namespace {before}", "warn")

    def _replace(self, victim: Member, killed_s: float) -> Iterator[None]:
        freed = victim.worker
        yield from self._until(
            lambda: self.snapshot.lease_left_ms(victim) == 0, 2 * self.plan.ttl_s + _STEP_TIMEOUT_S
        )
        after = duration((self.now_s - killed_s) * 1000)
        record = self.snapshot.of(victim)
        # "expired" until another process claims the worker id; "free" once it was released
        why = "its lease ended" if record and record.state == "expired" else "another process released it"
        self.log(f"worker id {freed} is available again, {after} after the kill: {why}", "good")
        # time to see it in the display
        yield from self._wait(self.plan.seconds * 0.06)
        newcomer = self.fleet.start()
        self.log(f"a new process starts (pid {newcomer.pid})")
        yield from self._until(lambda: bool(newcomer.workers) or not newcomer.running, _START_TIMEOUT_S)
        if newcomer.workers:
            which = ", the dead one's" if newcomer.worker == freed else ""
            self.log(f"it claimed worker id {newcomer.worker}{which}", "good")

    def _end(self) -> Iterator[None]:
        self.making_s = (self.making_s[0], self.now_s)
        terminated = self.fleet.terminate()
        self.log(f"SIGTERM to all {len(terminated)}: they end and release their worker ids")
        # their last messages may arrive a moment after they ended
        yield from self._until(lambda: all(member.closed for member in terminated), _STEP_TIMEOUT_S)
        yield from self._until(lambda: self.snapshot.info.used == 0, 1.0)
        used = self.snapshot.info.used
        self.log(f"{used} worker ids are still leased" if used else "no worker id is leased any more")
        for member in terminated:
            if not member.closed:
                self.failed = True
                self.log(f"pid {member.pid} did not release its worker id", "bad")


def _listed(numbers: list[int]) -> str:
    """Return numbers as text: 0, 1 and 2; or 0 to 11."""
    if len(numbers) > 6 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
