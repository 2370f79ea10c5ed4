"""A process of the fleet: the shipped SnowflakeGenerator with everything around it simulated.

Heartbeat and id makers are tasks of one process that share one generator, as threads do. They
give way to each other where the generator reads the clock, sleeps, waits for a lock or for Redis.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from snowredis.core.lanes import SEALED
from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.exit import EXIT
from snowredis.servers.scripts import Script
from snowredis.snowflake.crash.record import NO_RECORD, CrashRecord
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.lease.context import WeakGenerator
from snowredis.snowflake.protocol.messages import LossReason, Store
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.checker import Claim, Reservation
from tests.lab.simulation.stand_ins import Host, SimClock, SimGuard, SimKeeper, SimStore
from tests.lab.simulation.world import SimLock, TaskKilled

if TYPE_CHECKING:
    from tests.lab.simulation.schedule import Simulation


# a fleet that forks for ever is another test
MOST_PROCESSES = 8
# for calls that are under way when a process is told that it lost its lease
AT_ONCE_US = 1_000_000


def copy_of_count(numbers: itertools.count[int]) -> itertools.count[int]:
    """Return a copy of *numbers*, which copy.copy() refuses since Python 3.14; only its repr shows where it stands."""
    return itertools.count(int(repr(numbers).removeprefix("count(").removesuffix(")")))


class Process:
    """One process. Its tasks are started by run()."""

    lease_manager_class: type[SimKeeper] = SimKeeper
    guard_class: type[SimGuard] = SimGuard
    record_class: type[CrashRecord] = CrashRecord
    # a SnowflakeGenerator, whose locks are replaced
    generator: Any

    def __init__(self, sim: Simulation, host: Host, config: PoolConfig | None = None) -> None:
        self._bare(sim, host, config or sim.config)
        generator = SnowflakeGenerator(
            self.store, clock=self.clock, random_bytes=self.random_bytes, guard=self.guard, **sim.options
        )
        EXIT._members.discard(generator)
        lease_manager: Any = generator._lease_manager
        lease_manager.__class__ = self.lease_manager_class
        lease_manager.process = lease_manager.slot.process = self
        lease_manager.slot.__class__ = lease_manager.slot_class
        lease_manager.view.__class__ = lease_manager.view_class
        lease_manager.dead_processes = lease_manager.dead_class(self)
        self.generator = generator
        self.lease_manager: SimKeeper = lease_manager
        self.new_locks()

    def new_record(self, store: Store) -> CrashRecord:
        """Return a crash record in a file of its machine; NO_RECORD if there are none in this schedule."""
        if self.unborn is not None:
            # what is done now, its parent did
            return NO_RECORD
        return NO_RECORD if self.sim.machines is None else self.sim.machines.new_record(self, store)

    def _bare(self, sim: Simulation, host: Host, config: PoolConfig) -> None:
        self.sim, self.world, self.host, self.name = sim, sim.world, host, sim.new_name()
        self.alive, self.paused_until_us = True, 0
        # error -> how often it was raised
        self.errors: dict[str, int] = {}
        self.config = config
        # heartbeats that are slept through, up to this moment
        self.starved_until_us = 0
        self.claims: list[Claim] = []
        # by token and worker id
        self.granted: dict[tuple[str, int], Reservation] = {}
        # task -> the claims of which the process was told nothing when the task's call began: a thread that stopped in
        # the middle of it returns an id that it took before
        self.claims_of_calls: dict[Any, list[Claim]] = {}
        # those of which it was told that a copy of it has them
        self.void_claims: list[Claim] = []
        # those of which it was told that it lost them
        self.refused_claims: list[Claim] = []
        # somebody is about to take a snapshot of it
        self.suspending = False
        # what happens at the how manieth interruption from now
        self.armed: tuple[int, Callable[[], None]] | None = None
        # what gives its random bytes
        self.entropy = Entropy(sim.random.getrandbits(64))
        # called as the next id is asked for, and when the next claim is under way
        self.before_call: Callable[[], None] | None = None
        self.before_claim: Callable[[], None] | None = None
        # makes a child whose fork comes in the middle of a call; None before and after
        self.unborn: Callable[[], None] | None = None
        self.clock = SimClock(self)
        self.store = SimStore(self, config)
        self.guard = self.guard_class(self)
        sim.processes.append(self)
        if sim.machines is not None:
            sim.machines.begin(self)

    def random_bytes(self, count: int) -> bytes:
        return self.entropy.take(count)

    def new_locks(self) -> None:
        self.generator._lock = SimLock(self.world, self.interrupted)
        self.lease_manager.conversation.lock = SimLock(self.world)  # type: ignore[assignment]

    def ask(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        if self.unborn is not None:
            self.unborn()
            raise StoreUnavailable("simulated", "the answer is the parent's")
        if self.before_claim is not None and script.name == "claim":
            hook, self.before_claim = self.before_claim, None
            hook()
        self.sim.checker.asked(self, script.name, args)
        reply = self.sim.network.call(self, script.name, script.source, keys, args)
        self.sim.checker.replied(self, script.name, args, reply)
        if reply[0] == "signature":
            self._has_been_told(list(self.claims))
        elif reply[0] == "lost":
            worker, token = str(args[6]).split(",")[0], str(args[4])
            lost = [claim for claim in self.claims if claim.worker == int(worker) and claim.token == token]
            self.refused_claims += lost
            *_, reason, keeps_lane, _ = reply
            if keeps_lane == "0":
                self._has_been_told(lost, void=reason == LossReason.COPIED)
        return reply

    def _has_been_told(self, claims: list[Claim], *, void: bool = False) -> None:
        """Forget *claims* soon: the pool has replied that it has other settings now, or that a copy has them."""
        at_once_us = max(self.world.now_us, self.paused_until_us) + AT_ONCE_US

        def forget() -> None:
            if self.paused_until_us > at_once_us - AT_ONCE_US:
                self._has_been_told(claims, void=void)
            else:
                self.claims = [claim for claim in self.claims if claim not in claims]
                self.void_claims += claims if void else []

        self.world.at(at_once_us, forget)

    def interrupted(self, *, readily: bool = True) -> bool:
        """Interrupt the task, perhaps, where a clock is read or a lock released; return true if so."""
        world = self.world
        if not self.alive:
            return False
        world.tick()
        if self.armed is not None and readily:
            count, action = self.armed
            self.armed = (count - 1, action) if count > 1 else None
            if count <= 1:
                action()
                return True
        if self.sim.preempt and world.current is not None and world.random.random() < self.sim.preempt:
            world.sleep(world.random.choice((0, 1, 30, 400, 3_000, 20_000)))
            return True
        return False

    # --- tasks -------------------------------------------------------------------------------------

    def run(self, delay_us: int = 0) -> None:
        for _ in range(self.sim.makers):
            self.world.spawn(self, self.make_on, delay_us)
        self.world.spawn(self, self._beat, delay_us)

    def _beat(self) -> None:
        world = self.world
        # the heartbeat starts with the first claim
        while self.lease_manager.held is None:
            world.sleep(200_000)
        delay_s = self._first_beat_s()
        while not self.generator.closed:
            world.sleep(max(1, ceil(delay_s * 1e6)))
            if self.starved_until_us > world.now_us:
                world.sleep(self.starved_until_us - world.now_us)
            delay_s = self.generator._beat()

    def _first_beat_s(self) -> float:
        return self.generator._lifecycle.pace.beat_in_s()

    def make_on(self) -> None:
        """Make ids again and again, until the generator is closed: one thread of the process."""
        random = self.world.random
        while not self.generator.closed:
            self.world.sleep(round(random.expovariate(1 / self.sim.gap_us)))
            self.make(random.choice((1, 1, 2, 5)))

    def begin_call(self) -> None:
        claims = [claim for claim in self.claims if all(claim is not each for each in self.refused_claims)]
        self.claims_of_calls[self.world.current] = claims

    def make(self, count: int = 1) -> None:
        """Make some ids, if possible; five are a batch."""
        if self.before_call is not None:
            call, self.before_call = self.before_call, None
            call()
        try:
            self.begin_call()
            if count == 5:
                for an_id in self.generator.next_ids(count):
                    self.sim.checker.emit(self, an_id)
                return
            for _ in range(count):
                self.begin_call()
                self.sim.checker.emit(self, self.generator.next_id())
        except SnowredisError as error:
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            if self.world.trace is not None:
                self.world.note("%s: %s: %s", self.name, name, error)

    # --- what happens to processes -----------------------------------------------------------------

    def crash(self) -> None:
        """Kill the process as kill -9 does. If one of its own tasks calls this, that task ends here."""
        self.alive = False
        me = self.world.current
        self.world.kill_tasks(self)
        if me is not None and me.owner is self:
            raise TaskKilled

    def stop(self) -> None:
        """Close the generator in a thread of its own, then exit."""

        def close() -> None:
            self.generator.close()
            self.crash()

        self.world.spawn(self, close)

    def drop(self) -> None:
        """Drop the generator without close(): once no call goes on, the thread of its heartbeat releases its lease."""
        # no other call begins
        self.lease_manager.closed = True

        def abandon() -> None:
            while self.world.has_others(self):
                self.world.sleep(100_000)
            self.lease_manager.abandon()
            self.crash()

        self.world.spawn(self, abandon)

    def fork(self, *, bypass: bool = False) -> Process:
        """Return a forked child: a copy of the memory, with one thread, which has not run yet."""
        child = self._copy(self.host)
        if bypass:
            child.guard.is_reset.value = False
        else:
            child.guard.recover()
        return child

    def fork_in_call(self, readings: int, *, bypass: bool = False) -> Process | None:
        """A signal handler forks within a call, at the given reading of the clock; parent and child go on with it.

        The child makes the same call from the same state at the same time, and is one from then on.
        None where another thread is in the middle of something: a copy would not do the same.
        """
        if self.generator._lock.owner is not None or self.lease_manager.conversation.lock.owner is not None:  # type: ignore[attr-defined]
            return None
        child = self._copy(self.host)

        def bear() -> None:
            if child.unborn is not None:
                child.unborn = None
                if bypass:
                    child.guard.is_reset.value = False
                else:
                    child.guard.recover()

        def go_on() -> None:
            with contextlib.suppress(SnowredisError):
                an_id = child.generator.next_id()
                if child.unborn is None:
                    self.sim.checker.emit(child, an_id)
            # at the latest, when the call is over
            bear()
            child.run()

        child.unborn = bear
        child.armed = (readings, bear)
        self.world.spawn(child, go_on)
        return child

    def clone(self, *, suspended: bool = False, alike: bool = False) -> Process:
        """Return a copy on another machine, as from a snapshot of a VM. Neither process is informed.

        A copy of a suspended process may repeat no id. Copied machines continue with the same state of the
        kernel's random numbers.
        """
        child = self._copy(Host(f"{self.host.name}+", self.host.offset_us))
        # calls under way are not copied, they end without a trace
        child.lease_manager.conversation.busy = None
        child.new_locks()
        leases = self.lease_manager
        copied = leases.held, leases.slot.lost_lease
        tokens = [held.token for held in copied if held is not None]
        # a process that has begun to release its lease has none any more
        child.claims = [claim for claim in self.claims if claim.token in tokens]
        child.granted = dict(self.granted)
        if alike:
            child.entropy = copy.copy(self.entropy)
        if not suspended:
            if self.sim.tracer is not None:
                self.sim.tracer.cloned(self.name, child.name)
            self.sim.checker.cloned(copied, leases.slot.asked[0])
        return child

    def _copy(self, host: Host) -> Process:
        child = object.__new__(type(self))
        child._bare(self.sim, host, self.config)
        child.guard.generation = self.guard.generation
        child.guard.is_reset.value = self.guard.is_reset.value
        parent, me = self.world.current, object()
        child.generator = copied = SnowflakeGenerator.__new__(SnowflakeGenerator)
        old = self.lease_manager
        instead = [
            (self, child),
            (self.sim, self.sim),
            (self.clock, child.clock),
            (self.store, child.store),
            (self.guard, child.guard),
            (self.config, child.config),
            (self.generator, copied),
            (self.generator._context.weak_generator, WeakGenerator(copied)),
            # that of a parent, after a fork in the middle of a conversation; else one of those below
            (old.conversation.busy, old.conversation.busy),
            (self.generator._lock, self.generator._lock.copy(parent, me, child.interrupted)),
            (old.conversation.lock, old.conversation.lock.copy(parent, me, None)),  # type: ignore[attr-defined]
            (self.generator._context.random, copy.copy(self.generator._context.random)),
            (old.slot._serials, copy_of_count(old.slot._serials)),
            (old.slot.latest, old.slot.latest),
            (old.slot._lost_lease, old.slot._lost_lease),
            (old.slot.record, NO_RECORD),
        ]
        memo = {id(thing): replacement for thing, replacement in instead}
        for name, value in vars(self.generator).items():
            setattr(copied, name, copy.deepcopy(value, memo))
        child.lease_manager = copied._lease_manager  # type: ignore[assignment]
        ticks, last_id, _ = self.generator._position
        ticks = ticks._replace(first_id=last_id, is_reset=child.guard.is_reset, clock=child.clock)
        copied._supersede(None, SEALED, ticks)
        child.guard.reset_in_child(copied)
        return child


class Entropy:
    """Source of random bytes; a copy of it repeats them."""

    def __init__(self, seed: int) -> None:
        self._seed, self._taken = seed, 0

    def take(self, count: int) -> bytes:
        self._taken += 1
        return hashlib.sha256(b"%d %d" % (self._seed, self._taken)).digest()[:count]
