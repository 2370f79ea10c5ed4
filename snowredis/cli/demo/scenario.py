"""What happens in the demo, in order, and what is told of it.

Each act waits for what it rests on, then does one thing and says what came of it: as it was seen, not
as it was meant. Draws nothing; show.py calls step() again and again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from snowredis.cli.demo.fleet import Fleet, Member, Report
from snowredis.cli.output import duration, printable
from snowredis.lease.inspect import PoolInfo, WorkerInfo

# processes that start all at once on two cores
_START_LIMIT_S = 20.0
# for what should take milliseconds
_SOON_S = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """When what happens, in seconds from the start; each as soon as what it rests on has happened."""

    seconds: float
    workers: int

    @property
    def ttl_s(self) -> float:
        """Short enough to see a dead worker's lease end."""
        return min(4.0, self.seconds / 5)

    @property
    def kill_s(self) -> float:
        return self.seconds * 0.25

    @property
    def step_s(self) -> float:
        return self.seconds * 0.36

    @property
    def end_s(self) -> float:
        # the rest is for ending them and for checking what they made
        return self.seconds * 0.91

    @property
    def step_ms(self) -> int:
        """Far more than is waited out."""
        return -5000


@dataclass(frozen=True, slots=True)
class Look:
    """The pool at one moment; every worker id that was ever used."""

    at_s: float
    info: PoolInfo
    workers: dict[int, WorkerInfo]

    def of(self, member: Member) -> WorkerInfo | None:
        """The record of the worker id of *member*, unless somebody else has it by now."""
        record = self.workers.get(-1 if member.worker is None else member.worker)
        return record if record is not None and record.pid == member.pid else None

    def lease_left_ms(self, member: Member) -> int:
        """0 if it ended, or there is none."""
        record = self.of(member)
        if record is None:
            return 0
        return max(0, record.lease_left_ms - round((time.monotonic() - self.at_s) * 1000))


@dataclass(frozen=True, slots=True)
class LogLine:
    at_s: float
    text: str
    style: str = ""


@dataclass(slots=True)
class Scenario:
    """Makes things happen to *fleet*, and keeps what is told in ``lines``.

    Attributes:
        look: the newest look at the pool.
        failed: whether a process ended that nobody ended, or did not give its worker id back.
        making_s: when the first ids were made and when the last, from the start.
    """

    fleet: Fleet
    plan: Plan
    began_s: float
    look: Look
    lines: list[LogLine] = field(default_factory=list)
    failed: bool = False
    making_s: tuple[float, float] = (0.0, 0.0)
    _acts: Iterator[None] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self._acts = self._all_acts()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def tell(self, text: str, style: str = "") -> None:
        self.lines.append(LogLine(self.now_s, text, style))

    def step(self, reports: list[Report], look: Look) -> bool:
        """Do what is due; False when it is over."""
        self.look = look
        for member, word, text in reports:
            self._listen(member, word, text)
        return next(self._acts, self) is None

    def _listen(self, member: Member, word: str, text: str) -> None:
        """What nobody planned is told, too."""
        if word == "trouble":
            self.tell(f"pid {member.pid} makes no ids: {printable(text, 200)}", "bad")
        elif word == "claimed" and len(member.workers) > 1:
            self.tell(f"pid {member.pid} goes on with worker id {text}", "warn")
        elif word == "ended" and not member.killed and not member.closed:
            self.failed = True
            why = printable(self.fleet.last_words(member), 200)
            self.tell(f"pid {member.pid} ended by itself (exit code {text}): {why}", "bad")

    def _until(self, condition: Callable[[], bool], limit_s: float) -> Iterator[None]:
        deadline_s = self.now_s + limit_s
        while not condition() and self.now_s < deadline_s:
            yield

    def _until_time(self, at_s: float) -> Iterator[None]:
        return self._until(lambda: self.now_s >= at_s, at_s)

    # --- the acts ----------------------------------------------------------------------------------

    def _all_acts(self) -> Iterator[None]:
        yield from self._start()
        able = [member for member in self.fleet.members if member.running and member.workers]
        able.sort(key=lambda member: member.worker or 0)
        if len(able) > 1:
            victim, stepped = able[len(able) // 2], able[-1] if len(able) > 2 else able[0]
            yield from self._until_time(self.plan.kill_s)
            killed_s = self._kill(victim)
            yield from self._until_time(self.plan.step_s)
            yield from self._step_clock(stepped)
            yield from self._replace(victim, killed_s)
        yield from self._until_time(self.plan.end_s)
        yield from self._end()

    def _start(self) -> Iterator[None]:
        members = [self.fleet.start() for _ in range(self.plan.workers)]
        self.tell(f"{len(members)} processes start; leases last {duration(self.plan.ttl_s * 1000)}")
        yield from self._until(lambda: any(member.workers for member in members), _START_LIMIT_S)
        self.making_s = (self.now_s, self.now_s)
        yield from self._until(lambda: all(m.workers or not m.running for m in members), _START_LIMIT_S)
        claimed = sorted(member.workers[0] for member in members if member.workers)
        if not claimed:
            self.failed = True
            return
        self.tell(f"they claimed worker ids {_listed(claimed)}")

    def _kill(self, victim: Member) -> float:
        left = duration(self.look.lease_left_ms(victim))
        self.fleet.kill(victim)
        self.tell(f"kill -9 worker {victim.worker} (pid {victim.pid}): its lease ends in {left}", "bad")
        return self.now_s

    def _step_clock(self, member: Member) -> Iterator[None]:
        before, ms = member.namespace, self.plan.step_ms
        self.fleet.step_clock(member, ms)
        self.tell(f"clock of worker {member.worker} set back by {duration(-ms)}", "warn")
        yield from self._until(lambda: member.namespace != before, _SOON_S)
        if member.namespace != before:
            self.tell(f"it goes on in namespace {member.namespace}, where no id was made yet", "note")
        else:
            self.tell(f"it is still in namespace {before}", "warn")

    def _replace(self, victim: Member, killed_s: float) -> Iterator[None]:
        freed = victim.worker
        yield from self._until(lambda: self.look.lease_left_ms(victim) == 0, 2 * self.plan.ttl_s + _SOON_S)
        after = duration((self.now_s - killed_s) * 1000)
        self.tell(f"worker id {freed} is free again, {after} after the kill", "good")
        yield from self._until_time(self.now_s + self.plan.seconds * 0.06)
        newcomer = self.fleet.start()
        self.tell(f"a new process starts (pid {newcomer.pid})")
        yield from self._until(lambda: bool(newcomer.workers) or not newcomer.running, _START_LIMIT_S)
        if newcomer.workers:
            which = ", the dead one's" if newcomer.worker == freed else ""
            self.tell(f"it claimed worker id {newcomer.worker}{which}", "good")

    def _end(self) -> Iterator[None]:
        self.making_s = (self.making_s[0], self.now_s)
        asked = self.fleet.ask_to_end()
        self.tell(f"SIGTERM to all {len(asked)}: they end and give their worker ids back")
        # what they said last may be heard a moment after they ended
        yield from self._until(lambda: all(member.closed for member in asked), _SOON_S)
        yield from self._until(lambda: self.look.info.used == 0, 1.0)
        used = self.look.info.used
        self.tell(f"{used} worker ids are still leased" if used else "no worker id is leased any more")
        for member in asked:
            if not member.closed:
                self.failed = True
                self.tell(f"pid {member.pid} did not give its worker id back", "bad")


def _listed(numbers: list[int]) -> str:
    """0, 1 and 2; or 0 to 11."""
    if len(numbers) > 6 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
