"""One schedule: a fleet, a pool and a few classes of faults, all drawn from one seed.

It runs in three parts: faults; then everything heals and has as long as the design allows to come
to rest; then every living process must make an id, as far as the pool has worker ids for them.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snowredis.core.lanes import ClockPolicy, ClockRules
from snowredis.core.layout import Layout
from snowredis.errors import SnowredisError
from snowredis.process.names import ProcessName
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from tests.lab.simulation.checker import Checker
from tests.lab.simulation.faults import FAULTS
from tests.lab.simulation.machines import Machines
from tests.lab.simulation.network import Network
from tests.lab.simulation.pool_faults import CHANGES
from tests.lab.simulation.process import Process
from tests.lab.simulation.redis_faults import CLOCKS, IDENTITIES, LOSSES, NOT_ASSURED, OF_SENTINEL
from tests.lab.simulation.redis_model import CHANGING, CONSTANT, SHOWN, WITHOUT_IDENTITY, RedisModel
from tests.lab.simulation.sequences import WITH_OUTAGE_LANE
from tests.lab.simulation.stand_ins import Host
from tests.lab.simulation.world import START_US, Stuck, World
from tests.support.holder import create

if TYPE_CHECKING:
    from tests.lab.simulation.tracing import Tracer

TTL_MS = 6_000
EPOCH_2015_MS = 1_420_070_400_000
FAULTS_END_S = (12, 22)
# heartbeats, time-outs and the first answer after everything healed
PATIENCE_US = 7_000_000


@dataclass
class Result:
    """Result of one schedule."""

    seed: int
    classes: tuple[str, ...]
    fired: Counter[str]
    ids: int
    duplicates: int
    excused: int
    alarms: int
    scripts: int
    failures: list[str]
    trace: list[str] = field(default_factory=list)


class Simulation:
    """Run of one schedule: its fleet, pool, network and faults. One seed decides everything."""

    def __init__(self, seed: int, classes: Iterable[str] | None = None, *, traced: bool = False) -> None:
        self.world = World(seed, traced=traced)
        self.random = self.world.random
        self.fired: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.healed = False
        self._names = self._hosts = 0
        self.seed = seed
        self.classes = tuple(classes) if classes is not None else self._draw_classes()
        self.alarms = 0
        # logs the run; see tracing.py
        self.tracer: Tracer | None = None
        self.process_class: type[Process] = Process
        self._draw_settings()
        self._draw_servers()
        self.machines = Machines(self) if {"reclaim", "heirs", "inherited"} & {*self.classes} else None
        # replaces the names of processes in their records; for rules.py
        self.name_rule: Callable[[ProcessName], ProcessName] | None = None
        # whether Redis forgot something, and whether it went back in time in a way that nobody can notice at once
        self._forgot = self._went_back = False
        # whether the address led to another pool of that name, and whether a holder had a lease then
        self.led_elsewhere = self.had_holders = False
        # when the pool ends, as a person wants it; 0: it has no end
        self.ends_us = 0
        # whether leases ended before their time, since the Redis clock was ahead
        self.ended_early = False
        # the newest claim
        self._claimed_us = 0
        first = RedisModel(self.world, "redis0", self.shows if self.steady else SHOWN)
        first.offset_us = self.redis_offset_us() if "redis_clock" in self.classes else 0
        if set(LOSSES) & set(self.classes):
            first.history = []
        self.network = Network(self.world, [first], self.fired)
        self.network.answered = self._answered
        self.checker = Checker(self.world)
        self.network.malformed = self.checker.fail
        self.heal_us = START_US + self.random.randint(*FAULTS_END_S) * 1_000_000

    def _draw_classes(self) -> tuple[str, ...]:
        """Draw fault classes: one in turn by the seed, and up to seven more that may be combined with it."""
        names = list(FAULTS)
        first = names[self.seed % len(names)]
        chosen = {first}
        for name in self.random.sample(names, self.random.choice((0, 0, 1, 2, 3, 5, 7))):
            if not any(_excludes(name, other) for other in chosen):
                chosen.add(name)
        return tuple(name for name in names if name in chosen)

    def _draw_settings(self) -> None:
        random = self.random
        slack_ms = (
            random.choice((1000, 2000)) if set(OF_SENTINEL) & set(self.classes) else random.choice((0, 0, 0, 2000))
        )
        tick_ms = random.choice((1, 1, 10, 100, 1000, 7000))
        in_outages = bool(set(WITH_OUTAGE_LANE) & set(self.classes))
        layout = Layout(
            timestamp_bits=41,
            backup_bits=max(random.randint(0, 2), int(in_outages)),
            worker_bits=random.randint(1, 3),
            # enough for what the makers ask for
            sequence_bits=random.randint(1, 4) + (tick_ms >= 100) * 3,
            tick_ms=tick_ms,
            epoch_ms=EPOCH_2015_MS,
            worker_last=random.random() < 0.2,
        )
        self.config = PoolConfig(
            name="sim",
            layout=layout,
            ttl_ms=TTL_MS,
            failover_slack_ms=TTL_MS // 12 + slack_ms,
            outage_reserve_ms=self._draw_outage_reserve() if layout.backup_bits else 0,
            durability=self._draw_durability(),
        )
        # all that the pool had
        self.configs = [self.config]
        self.ttl_us = self.config.ttl_ms * 1000
        self.lead_us = self.config.max_clock_lead_ms * 1000
        self.skew_us = TTL_MS // 12 * 1000
        self.slack_us = slack_ms * 1000
        self.reserve_us = self.config.outage_reserve_ms * 1000
        choices: tuple[tuple[ClockPolicy, int, int], ...] = (
            *(("backup", 10, 0),) * 3,
            *(("wait", wait_ms, ahead_ms) for wait_ms, ahead_ms in ((5_000, 0), (0, 0), (0, 1_000))),
        )
        policy, max_wait_ms, ahead_ms = random.choice(choices)
        # an exhausted sequence borrows ticks, too
        ahead_ms = max(ahead_ms, random.choice((0, 0, 1_000)))
        rules = ClockRules(policy=policy, max_wait_ms=max_wait_ms, max_ahead_ms=ahead_ms)
        self.options: dict[str, Any] = {"rules": rules, "sequence_start": random.choice(("spread", "zero") * 2)}
        self.size = random.randint(2, 6)
        self.makers = random.choice((1, 1, 2))
        # between two calls of a process
        self.gap_us = random.choice((200_000, 500_000, 1_000_000)) * self.makers
        # how often another task comes in where a clock is read
        self.preempt = random.choice((0.0, 0.02, 0.2))
        # a stranger who comes first would say what the pool is
        self.created = random.random() < 0.6 or "mixed" in self.classes or in_outages

    def _draw_outage_reserve(self) -> int:
        # drawn from its own random numbers: what else a seed means stays as it was
        drawn = random.Random(f"outage {self.seed}").choice((0, 13_000, 20_000, 40_000, 24 * 3_600_000))
        if "relaned" in self.classes:
            # the new pool waits for the end of all outage lanes
            drawn = min(drawn, 40_000)
        return drawn or 20_000 if set(WITH_OUTAGE_LANE) & set(self.classes) else drawn

    def _draw_durability(self) -> str:
        hidden = bool({"unidentified", "proxy"} & set(self.classes))
        durability = self.random.choice(("detect",) * (1 if hidden else 6) + ("assured", "none"))
        return "detect" if durability == "assured" and set(NOT_ASSURED) & set(self.classes) else durability

    def _draw_servers(self) -> None:
        """Draw the identity that INFO shows, if it is not the real one; *steady*: from the start to the end."""
        self.shows, self.steady = SHOWN, False
        for name in set(IDENTITIES) & set(self.classes):
            kinds = {"unidentified": WITHOUT_IDENTITY, "constant": (CONSTANT,), "proxy": (CHANGING,)}
            self.shows = self.random.choice(kinds[name])
            self.steady = name == "constant" or self.random.random() < 0.5
            self.fired[name] += self.steady

    # --- what faults use ---------------------------------------------------------------------------

    @property
    def living(self) -> list[Process]:
        """Those of the pool that have not closed; a child of one that is about to close is closed, too."""
        return [
            process
            for process in self.processes
            # one that is being made has no generator yet
            if process.alive and process.config == self.config and hasattr(process, "generator")
            if not process.generator.closed
        ]

    def someone(self) -> Process | None:
        living = self.living
        return self.random.choice(living) if living else None

    def new_name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def new_host(self) -> Host:
        self._hosts += 1
        return Host(f"h{self._hosts}")

    def say(self, what: str, *values: object) -> None:
        if self.world.trace is not None:
            self.world.note("*** " + what, *values)

    def redis_offset_us(self) -> int:
        return self.random.randint(-self.skew_us // 2, self.skew_us // 2)

    def before_heal(self, delay_us: int, action: Callable[[], None]) -> None:
        """Call a function once: after *delay_us*, or just before everything heals."""
        self.world.at(min(self.world.now_us + delay_us, self.heal_us - 1), action)

    def start_again(self, process: Process) -> None:
        """Start another process on the same host, after some time."""

        def start() -> None:
            self.process_class(self, process.host).run()

        self.before_heal(self.random.choice((0, self.random.randint(0, 2 * self.ttl_us))), start)

    def replace_config(self, config: PoolConfig) -> None:
        """Give processes that start from now on this configuration."""
        self.config = config
        self.configs.append(config)
        self.ttl_us = max(self.ttl_us, config.ttl_ms * 1000)

    def may_forget(self, name: str) -> bool:
        """Return true if Redis may lose data now, and count it. Only one is allowed where losses cannot
        be detected, and where the Redis clock is ahead, which ends the wait after a loss before its time.
        """
        if self._forgot and (self.config.durability == "none" or "ahead" in self.classes):
            return False
        self._forgot = True
        self.fired[name] += 1
        self.excuse()
        return True

    def excuse(self) -> None:
        """Excuse what is lost now if a clock was ahead, the address led to another pool, or a clone has done it."""
        self.checker.lose_what_clones_did()
        if self.ended_early or self.led_elsewhere:
            self.lift()
            self.checker.lift_granted()

    def wipe(self) -> None:
        """Wipe the Redis that processes reach now."""
        self.excuse()
        self.say("wipe")
        self.network.master.wipe()

    def lost_us(self, longest_us: int) -> int:
        """Draw how many us of writes are lost; none under "assured", which promises that no acknowledged write is."""
        if self.config.durability == "assured":
            return 0
        lost_us = self.random.choice((0, 100_000, self.random.randint(0, longest_us)))
        if self.random.random() < 0.5:
            # a worker id that nobody knows of any more
            lost_us = max(lost_us, min(longest_us, self.world.now_us - self._claimed_us + 1))
        return lost_us

    def somebody_comes(self) -> None:
        """Start a process just after a loss, before living processes have noticed the loss."""
        if len(self.living) <= self.size and self.random.random() < 0.5:
            self.process_class(self, self.new_host()).run()

    def went_unnoticed(self) -> None:
        """Other data, or another server: where all servers call themselves the same, nobody can know."""
        if self.shows == CONSTANT and self.config.durability == "detect":
            self.went_back()

    def went_back(self) -> None:
        """The pool is older than it was, and nothing shows it before a client comes that saw more."""
        self._went_back = True
        self.lift()

    def lift(self) -> None:
        """From a state that went back in time nobody holds anything for longer than this."""
        margin_us = self.lead_us + self.skew_us + self.slack_us
        until_ms, outage_until_ms = (
            (self.world.now_us + length_us + margin_us) // 1000 + self.config.layout.tick_ms
            for length_us in (self.ttl_us, self.config.outage_reserve_ms * 1000)
        )
        self.checker.lift(until_ms, outage_until_ms)
        if self.tracer is not None:
            self.tracer.lifted(until_ms, outage_until_ms)

    def _answered(self, server: RedisModel, name: str, reply: list[str]) -> None:
        self._check_identity(server, name, reply)
        if reply[0] == "granted":
            self._claimed_us = self.world.now_us
        if len(reply) < 5 or not reply[4] or "@" not in reply[2]:
            return
        self.alarms += 1
        self.say("ALARM: %s", reply[4])
        if self._went_back:
            self.lift()
        elif not ({*LOSSES, "changed"} & set(self.classes) or self.led_elsewhere):
            # two losses within skew_us may look like that, too, and so may a wipe after which the clock is set back
            self.checker.fail(f"an alarm without a reason: {reply[4]}")

    def _check_identity(self, server: RedisModel, name: str, reply: list[str]) -> None:
        if self.config.durability != "detect":
            return
        if server.shows in WITHOUT_IDENTITY and (server.wrote or reply[0] not in ("unidentified", "signature")):
            self.checker.fail(f"{name} was answered {reply[0]} by a server that does not say which one it is")
        if server.shows == CHANGING and reply[0] == "granted":
            self.checker.fail("a worker id was leased through a proxy that leads to another server each time")

    # --- the course of things ----------------------------------------------------------------------

    def run(self) -> Result:
        with quiet():
            try:
                self._run()
            except Stuck as stuck:
                self.checker.fail(f"stuck: {stuck}")
            finally:
                self.world.close()
        return self.result()

    def _run(self) -> None:
        self._begin()
        if self.classes:
            self.world.after(1_000_000, self._go_wrong)
        self.world.run(self.heal_us)
        self._heal()
        config = self.config
        longest_us = max(self.ttl_us, self.reserve_us * ("relaned" in self.classes))
        floor_us = longest_us + self.lead_us + self.skew_us + self.slack_us
        # whoever comes waits out a floor where losses go unnoticed, after the end of a lease in a full pool. A lease
        # of a Redis clock that was ahead lasts for so long after that
        floors = 1 + (config.durability == "none") + bool({"ahead", "boot_ahead"} & set(self.classes))
        reach_us = floors * floor_us + self.skew_us + 2000 * config.layout.tick_ms
        rest_us = self.heal_us + reach_us + PATIENCE_US
        # what comes after an end has as long as what comes after everything healed
        is_soon = self.heal_us < self.ends_us < rest_us + PATIENCE_US
        self.world.run(self.ends_us + reach_us + PATIENCE_US if is_soon else rest_us)
        self._check_life()

    @property
    def refused(self) -> bool:
        """Return true if no process may get a worker id: losses have to be detected, and cannot be."""
        return self.steady and self.shows not in (SHOWN, CONSTANT) and self.config.durability == "detect"

    def _begin(self) -> None:
        processes = [self.process_class(self, self.new_host()) for _ in range(self.size)]
        if self.created:
            first = processes[0]
            self.world.spawn(None, lambda: self._create(first))
        for process in processes:
            process.run(self.random.randint(10_000, 2_000_000))

    def _create(self, process: Process) -> None:
        # a server that does not say which one it is refuses that, too
        with suppress(SnowredisError):
            create(process.store, self.world.now_us // 1000)

    def _go_wrong(self) -> None:
        if self.world.now_us < self.heal_us - 100_000:
            FAULTS[self.random.choice(self.classes)](self)
            self.world.after(round(self.random.expovariate(1 / 1_500_000)), self._go_wrong)

    def _heal(self) -> None:
        self.healed = True
        self.say("everything heals")
        self.network.heal()
        for server in self.network.servers:
            server.up, server.offset_us = server is self.network.master, 0
            server.refused.clear()
            if not self.steady:
                server.show(SHOWN)
        for process in self.living:
            process.host.offset_us = 0
            process.armed = process.before_call = process.before_claim = None
            if process.unborn is not None:
                process.unborn()
            # a copy that was made of a suspended one, and that nobody has resumed
            self.world.spawn(process, process.generator.resume)

    def _check_life(self) -> None:
        living = self.living
        expected = min(len(living), self.config.layout.workers - self._out_of_reach())
        before = dict(self.checker.made)

        def try_one(process: Process) -> Callable[[], None]:
            return lambda: process.make(1)

        for process in living:
            self.world.spawn(process, try_one(process))
        self.world.run(self.world.now_us + 2_500_000 + 2000 * self.config.layout.tick_ms)
        silent = [
            process for process in living if self.checker.made.get(process.name, 0) == before.get(process.name, 0)
        ]
        if self.refused:
            if len(silent) < len(living):
                self.checker.fail("ids are made, though nobody can tell which server this is")
            return
        if self.had_holders and not self.alarms:
            self.checker.fail("the address led to another pool of that name, and nothing raised an alarm")
        if len(living) - len(silent) < expected:
            who = ", ".join(f"{process.name} ({process.errors})" for process in silent)
            self.checker.fail(f"{len(living)} live, {expected} could make ids; these do not: {who}")

    def _out_of_reach(self) -> int:
        """Return how many worker ids have lanes that no clock reaches now: their holders' clocks were far ahead."""
        layout, now_ms = self.config.layout, self.world.now_us // 1000
        later_ms = now_ms + self.config.floor_ms + 1_000
        pool = self.network.master.data.get(pool_keys(self.config.name)[0], {})
        records = [LeaseRecord.parse(text) for name, text in pool.items() if name.startswith("w:")]
        # each process tries once, in the present tick; a lease that lasts ends within a floor's length. One that was
        # released while the Redis clock was ahead is available from that time on
        late = [
            min(each.lanes_ms[: self.config.ordinary_lanes]) > layout.ms_at(layout.tick_at(now_ms))
            or max(each.until_ms, each.lease_end_ms) > later_ms
            for each in records
            if each
        ]
        return sum(late) if "boot_ahead" in self.classes else 0

    def result(self) -> Result:
        return Result(
            seed=self.seed,
            classes=self.classes,
            fired=self.fired,
            ids=sum(self.checker.made.values()),
            duplicates=self.checker.duplicates,
            excused=self.checker.excused,
            alarms=self.alarms,
            scripts=sum(server.runs for server in self.network.servers),
            failures=self.checker.failures,
            trace=self.world.trace or [],
        )


def _excludes(name: str, other: str) -> bool:
    """Return true if two classes of faults cannot be in one schedule."""
    for one, two in ((name, other), (other, name)):
        if one in ("ahead", "boot_ahead") and two in CLOCKS:
            return True
        if one in CHANGES and two in (*CHANGES, *LOSSES, *IDENTITIES):
            return one != two
    return name in IDENTITIES and other in IDENTITIES and name != other


@contextmanager
def quiet() -> Iterator[None]:
    """Turn off logging: thousands of processes lose their leases and would log it."""
    log = logging.getLogger("snowredis")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def run_schedule(
    seed: int,
    classes: Iterable[str] | None = None,
    *,
    traced: bool = False,
    prepare: Callable[[Simulation], object] = lambda sim: None,
) -> Result:
    """Run the schedule of *seed*, with the fault classes that it draws or with the given ones.

    *prepare* is called before the schedule begins.
    """
    sim = Simulation(seed, classes, traced=traced)
    prepare(sim)
    return sim.run()
