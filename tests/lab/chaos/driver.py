"""Run a fleet under faults: start it, inject faults, check that every process makes ids again, count."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.worker_pool import WorkerPool
from tests.lab.chaos.faults import FAULTS, Begun, Fault, decks, phases
from tests.lab.chaos.proxy import Proxy
from tests.lab.chaos.runs import IN_C, UNRECORDED, read_status
from tests.lab.chaos.server import Server
from tests.lab.chaos.shim import StepClock, build
from tests.lab.chaos.slots import LOG, Slot

POOL = "chaos"
# a worker takes as long to start on a machine that is busy with a dozen others
START_S = 3.0
# a worker that is told to end has that long; its next_ids() may be waiting for Redis
END_S = 15.0
POLL_S = 0.02
MOST_WAITING = 8
# ids may be late by as much for no other reason than a busy machine
MARGIN_S = 5.0


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    seconds: over which the faults are spread; recovery and check take longer. ids: continue for at least so many.
    rest_s: what each process sleeps after each batch; 0: it makes ids as fast as it can.

    The layout has barely more worker ids than there are processes with their children, and a sequence so wide
    that the processor is the limit.
    """

    seed: int = 0
    processes: int = 8
    faults: int = 1000
    seconds: float = 300.0
    ids: int = 0
    ttl_s: float = 3.0
    # short enough that worker ids have an outage lane again soon after a loss
    outage_reserve_s: float = 10.0
    truce_every: int = 100
    layout: str = "41/0/2/4/16"
    # a setting of the pool; "none" is for a server without INFO
    durability: str = "detect"
    plain_ttl: bool = False
    rest_s: float = 0.0
    # "node": half of the processes are of examples/client/client.mjs; a command: of that client, see foreign.py
    also: str = ""


@dataclass
class Report:
    """Figures of a run.

    recovery_s: the longest time until every process made ids again after a truce, and its limit.
    gap_s: the longest that a worker was without ids although no fault explains it.
    hung: children that were killed at the end, since they did not end with their parents, by kind.
    """

    fired: Counter[str] = field(default_factory=Counter)
    skipped: str = ""
    seconds: float = 0.0
    ids: int = 0
    children: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    recovery_s: float = 0.0
    recovery_limit_s: float = 0.0
    gap_s: float = 0.0
    hung: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def sum_up(self, directory: Path) -> None:
        """Read the files of the processes."""
        for path in directory.glob("*.runs"):
            status = read_status(path)
            if status is not None:
                self.ids += status.counted
                self.errors[status.error] += status.errors
                self.children[status.kind] += 1
        del self.errors[""]
        for crash in sorted(directory.glob("*.crash")):
            self.problems.append(f"{crash.name}: {crash.read_text()[-1500:]}")
        if self.gap_s > MARGIN_S:
            self.problems.append(f"a living worker had no ids for {self.gap_s:.1f} s, and no fault explains it")


def ids_so_far(directory: Path) -> int:
    statuses = map(read_status, directory.glob("*.runs"))
    return sum(status.counted for status in statuses if status is not None)


def processes_of(directory: Path) -> list[int]:
    """Return the pids of the processes that still write to the log of the run in *directory*."""
    found, log = [], str(directory / LOG)
    for output in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if os.readlink(output) == log:
                found.append(int(output.parts[2]))
    return found


class Fleet:
    """The fleet of one chaos run: its processes, Redis and proxy, which the faults act on."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        say: Callable[[str], None] = lambda text: None,
        kinds: Sequence[Fault] = FAULTS,
    ) -> None:
        self.plan, self._directory, self._say, self._kinds = plan, directory, say, kinds
        self.report = Report()
        self.ttl_s, self.skew_s = plan.ttl_s, plan.ttl_s / 12
        self.keys = pool_keys(POOL)
        self.forward = -1
        self._rng = random.Random(plan.seed)
        self._began_ns = time.monotonic_ns()
        library, self.report.skipped = build(directory)
        self.server_clock = StepClock(directory / "redis.clock", library)
        self.server = Server(directory, self.server_clock.environment, hidden=plan.durability == "none")
        self.proxy = Proxy(self.server.socket)
        self.proxy.start()
        layout = resolve_layout(plan.layout)
        self.outage_reserve_s = plan.outage_reserve_s if layout.backup_bits else 0.0
        settings = (POOL, plan.layout, plan.ttl_s, self.outage_reserve_s, self.skew_s, plan.durability)
        options = (int(plan.plain_ttl), plan.rest_s)
        proxied = f"redis://127.0.0.1:{self.proxy.port}/0"
        self.slots = []
        for number in range(plan.processes):
            url = proxied if number % 2 else self.server.url
            arguments = (url, *settings, directory, number, self._began_ns, *options)
            clock = StepClock(directory / f"{number}.clock", library)
            # the second half of each four is of the other language: one with the proxy, one without
            language = plan.also if plan.also and number % 4 >= 2 else "python"
            self.slots.append(Slot(number, directory, clock, arguments, language))
        self._busy = {"redis": False, "proxy": False}
        # what is still to be done: when, what, and whether it can be done before
        self._later: list[tuple[float, Callable[[], None], Callable[[], bool]]] = []
        # what is promised: ttl + max_clock_lead + failover_slack; a new process starts meanwhile
        self._recovery_s = plan.ttl_s + 2 * self.skew_s + START_S
        if plan.durability == "none":
            # whoever comes waits as long, after the end of a lease
            self._recovery_s += plan.ttl_s + 2 * self.skew_s
        self.report.recovery_limit_s = self._recovery_s + MARGIN_S

    # --- what faults use ---------------------------------------------------------------------------

    def idle_slots(self) -> list[Slot]:
        return [slot for slot in self.slots if not slot.busy]

    def excuse(self, slots: Iterable[Slot], lasts_s: float) -> None:
        for slot in slots:
            slot.excused_s = max(slot.excused_s, time.monotonic() + lasts_s + self._recovery_s)

    def later(self, delay_s: float, action: Callable[[], None], ready: Callable[[], bool] = lambda: False) -> None:
        self._later.append((time.monotonic() + delay_s, action, ready))

    def end_and_restart(self, slot: Slot) -> None:
        """Send SIGTERM, and start a new process when the old one has ended."""
        slot.busy += 1
        slot.signal(signal.SIGTERM)
        self.excuse([slot], END_S)

        def restart() -> None:
            slot.restart()
            slot.busy -= 1

        self.later(END_S, restart, lambda: not slot.running())

    # --- the run -----------------------------------------------------------------------------------

    def run(self) -> Report:
        """Run until all processes have ended. Their ids are in the directory then."""
        try:
            self.server.start()
            config = PoolConfig(
                name=POOL,
                layout=resolve_layout(self.plan.layout),
                ttl_ms=round(self.ttl_s * 1000),
                outage_reserve_ms=round(self.outage_reserve_s * 1000),
                max_clock_lead_ms=round(self.skew_s * 1000),
                failover_slack_ms=round(self.skew_s * 1000),
                durability=self.plan.durability,
            )
            WorkerPool(self.server.url, POOL).create(config)
            self.server.keep_snapshot()
            for slot in self.slots:
                slot.start()
            self._truce()
            if self.plan.faults:
                self._chaos()
                self._truce()
            while self.plan.ids and ids_so_far(self._directory) < self.plan.ids and not self.report.problems:
                self._pass(1.0)
            self.report.seconds = time.monotonic() - self._began_ns / 1e9
        finally:
            self._end()
        self.report.sum_up(self._directory)
        return self.report

    def _chaos(self) -> None:
        plan, fired = self.plan, self.report.fired
        kinds_known = [
            fault
            for fault in self._kinds
            if not (fault.clock and self.report.skipped)
            # two of them in a short time are too many for a pool that cannot tell
            and not (fault.unseen and plan.durability == "none")
        ]
        every_s = plan.seconds / plan.faults
        for number, (count, kinds) in enumerate(phases(plan.faults, kinds_known)):
            if not count:
                continue
            if number:
                self._truce()
                self.server_clock.set(0)
            if number == 2:
                self.forward = 1
                self._pass(2.0)
            deck = decks(self._rng, kinds)
            waiting: list[Fault] = []
            for turn in range(count):
                self._begin_next(deck, waiting, count - turn)
                self._pass(self._rng.uniform(0.3, 1.7) * every_s)
                if turn % plan.truce_every == plan.truce_every - 1:
                    self._truce()
                    ids = ids_so_far(self._directory)
                    self._say(f"{fired.total():>6,} faults, {ids:>15,} ids, {self._elapsed_s():>6.0f} s")

    def _begin_next(self, deck: Iterator[Fault], waiting: list[Fault], left: int) -> None:
        """Begin the next fault whose target has no other fault; faults that had to wait come first.

        The *left* ones of this phase are kinds that have not come yet, if there are as many.
        """
        while True:
            # bounded, so that no kind waits until all is over
            if len(waiting) <= MOST_WAITING:
                waiting.append(next(deck))
            else:
                self._pass(POLL_S)
            idle = self.idle_slots()
            missing = [fault for fault in waiting if not self.report.fired[fault.name]]
            for fault in missing if left <= len(missing) else waiting:
                if idle if fault.target == "worker" else not self._busy[fault.target]:
                    waiting.remove(fault)
                    self._begin(fault, self._rng.choice(idle or self.slots))
                    return

    def _begin(self, fault: Fault, slot: Slot) -> None:
        if fault.target == "redis" and self._rng.random() < 0.3:
            self.server.keep_snapshot()
        begun = fault.begin(self, self._rng, slot)
        self.report.fired[fault.name] += 1
        excused = {"nobody": [], "target": [slot], "all": self.slots, "proxied": self.slots[1::2]}
        self.excuse(excused[begun.excuses], begun.lasts_s)
        if fault.target == "worker":
            slot.busy += 1
        else:
            self._busy[fault.target] = True
        self.later(begun.lasts_s, lambda: self._finish(fault, slot, begun))

    def _finish(self, fault: Fault, slot: Slot, begun: Begun) -> None:
        begun.end()
        if fault.target == "worker":
            slot.busy -= 1
        else:
            self._busy[fault.target] = False

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._began_ns) / 1e9

    def _pass(self, seconds: float, *, heal: bool = False) -> None:
        """Let time pass: end the faults that are due (all of them, to heal), and check every worker."""
        until_s = time.monotonic() + seconds
        while True:
            now_s = time.monotonic()
            due = [entry for entry in self._later if heal or entry[0] <= now_s or entry[2]()]
            for entry in due:
                self._later.remove(entry)
                entry[1]()
            for slot in self.slots:
                slot.check()
                last_s = self._began_ns / 1e9 + slot.last_ms() / 1000
                gap_s = time.monotonic() - max(last_s, slot.excused_s)
                self.report.gap_s = max(self.report.gap_s, gap_s)
            if now_s >= until_s:
                return
            time.sleep(min(POLL_S, until_s - now_s))

    def _truce(self) -> None:
        """End all faults; every process has to make ids again within the promised time."""
        self._pass(0, heal=True)
        began_s = self._elapsed_s()
        self.excuse(self.slots, 0)
        while silent := [slot.number for slot in self.slots if slot.last_ms() <= began_s * 1000]:
            if self._elapsed_s() - began_s > self.report.recovery_limit_s:
                self.report.problems.append(
                    f"no ids of workers {silent} for {self._elapsed_s() - began_s:.1f} s after the last fault"
                )
                break
            self._pass(POLL_S)
        self.report.recovery_s = max(self.report.recovery_s, self._elapsed_s() - began_s)

    # --- the end -----------------------------------------------------------------------

    def _end(self) -> None:
        for slot in self.slots:
            slot.signal(signal.SIGCONT)
            slot.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + END_S
        while any(slot.running() for slot in self.slots) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        for slot in self.slots:
            slot.end()
            self.report.problems += slot.problems
        # children end with their parents' stdin, unless they hang
        deadline_s = time.monotonic() + END_S
        while processes_of(self._directory) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        for pid in processes_of(self._directory):
            self.report.hung[self._kind_of(pid)] += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # where a thread waited for the GIL at a fork in C, CPython's own locks may be held in the child for ever
        self.report.problems += [f"a child hangs: {kind}" for kind in self.report.hung if kind not in IN_C]
        self.server.end()
        self.proxy.stop()

    def _kind_of(self, pid: int) -> str:
        """Return what kind of child *pid* is; UNRECORDED if it hangs since before it could record that."""
        statuses = map(read_status, self._directory.glob("*.runs"))
        return next((each.kind for each in statuses if each is not None and each.pid == pid), UNRECORDED)
