"""Faults. Each class is a function that injects one fault into a running simulation.

A fault that lasts ends by itself or when the simulation heals, whichever comes first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.lab.simulation import pool_faults, sequences
from tests.lab.simulation import redis_faults as redis
from tests.lab.simulation.process import MOST_PROCESSES, Process

if TYPE_CHECKING:
    from tests.lab.simulation.schedule import Simulation

Fault = Callable[["Simulation"], None]
FaultOfOne = Callable[["Simulation", Process], None]
YEAR_MS = 31_557_600_000


def of_one(fault: FaultOfOne) -> Fault:
    """Return a fault that happens to one of the living processes, if there is any."""

    def happen(sim: Simulation) -> None:
        process = sim.someone()
        if process is not None:
            fault(sim, process)

    return happen


def _window_us(sim: Simulation) -> int:
    return sim.random.randint(200_000, 2 * sim.ttl_us)


def _noise(attribute: str, most: float) -> Fault:
    def make_noise(sim: Simulation) -> None:
        network, lasts_us = sim.network, _window_us(sim)
        network.longest_delay_us = 3 * sim.ttl_us
        setattr(network, attribute, sim.random.uniform(0.05, most))
        sim.world.after(lasts_us, lambda: setattr(network, attribute, 0.0))

    return make_noise


def _suddenly(sim: Simulation, process: Process, action: Callable[[], None]) -> None:
    """Run an action now, or in the middle of a call: when the process next reads a clock."""
    if sim.random.random() < 0.3:
        action()
    else:
        process.armed = (sim.random.randint(1, 12), action)


def pause(sim: Simulation) -> None:
    process = sim.someone()
    length_us = sim.random.choice((sim.ttl_us // 4, sim.ttl_us, 2 * sim.ttl_us, 4 * sim.ttl_us))
    if process is None:
        return
    paused = process

    def stop() -> None:
        if sim.healed:
            return
        sim.fired["pause"] += 1
        sim.say("%s is paused for %d ms", paused.name, length_us // 1000)
        paused.paused_until_us = min(sim.world.now_us + length_us, sim.heal_us)
        if sim.world.current is not None:
            sim.world.sleep(0)

    _suddenly(sim, paused, stop)


@of_one
def starve(sim: Simulation, process: Process) -> None:
    sim.fired["starve"] += 1
    process.starved_until_us = min(sim.world.now_us + sim.random.randint(1, 3) * sim.ttl_us, sim.heal_us)


@of_one
def crash(sim: Simulation, process: Process) -> None:
    def die() -> None:
        if sim.healed:
            return
        sim.fired["crash"] += 1
        sim.say("%s crashes", process.name)
        sim.start_again(process)
        if sim.machines is not None:
            sim.machines.die(process)
        process.crash()

    _suddenly(sim, process, die)


def reclaim(sim: Simulation) -> None:
    """Kill processes whose leases others release, sometimes while Redis is unavailable."""
    crash(sim)
    if sim.random.random() < 0.2:
        redis.down(sim)


@of_one
def heirs(sim: Simulation, ended: Process) -> None:
    """Cut a machine off, end a process there in some way, and start others, maybe beside a copy of its record."""
    machines, random, name = sim.machines, sim.random, ended.host.name
    assert machines is not None
    come_back = sim.network.cut_off(name)
    how = random.choice(("killed", "closed", "suspended"))
    sim.say("%s does not reach Redis; %s is going to be %s", name, ended.name, how)

    def end() -> None:
        {"killed": lambda: None, "closed": ended.generator.close, "suspended": ended.generator.suspend}[how]()
        if sim.healed or not ended.alive:
            return
        if random.random() < 0.4:
            # a suspended machine may be copied with its records, and a directory always
            machines.copy_records(ended, same=how == "suspended")
        machines.die(ended)
        for _ in range(random.randint(1, 2)):
            sim.process_class(sim, ended.host).run()
        sim.fired["heirs"] += 1
        ended.crash()

    def begin() -> None:
        if ended.alive:
            sim.world.spawn(ended, end)

    sim.before_heal(random.randint(0, sim.ttl_us), begin)
    sim.before_heal(random.randint(sim.ttl_us, 4 * sim.ttl_us), come_back)


@of_one
def release(sim: Simulation, process: Process) -> None:
    sim.fired["release"] += 1
    sim.say("%s closes", process.name)
    process.stop()
    sim.start_again(process)


@of_one
def drop(sim: Simulation, process: Process) -> None:
    """Drop a generator without close(): its lease is released, and nobody can say how far it was used."""
    sim.fired["drop"] += 1
    sim.say("the generator of %s is dropped", process.name)
    process.drop()
    sim.start_again(process)


@of_one
def skew(sim: Simulation, process: Process) -> None:
    sim.fired["skew"] += 1
    process.host.offset_us = sim.random.randint(-3 * sim.lead_us, 3 * sim.lead_us)
    sim.say("clock of %s is off by %d ms", process.name, process.host.offset_us // 1000)


@of_one
def step(sim: Simulation, process: Process) -> None:
    sim.fired["step"] += 1
    size_ms = sim.random.choice((1, 5, 12, 100, 1_000, 7_000, 60_000, 3_600_000, 86_400_000, YEAR_MS, 3 * YEAR_MS))
    process.host.offset_us += sim.random.choice((-1, -1, 1)) * round(size_ms * 1000 * sim.random.uniform(0.5, 1))
    if sim.random.random() < 0.25:
        process.host.offset_us = 0
    sim.say("clock of %s is stepped, off by %d ms", process.name, process.host.offset_us // 1000)


def _offspring(name: str, make: Callable[[Simulation, Process], Process]) -> Fault:
    @of_one
    def offspring(sim: Simulation, parent: Process) -> None:
        if len(sim.living) >= MOST_PROCESSES:
            return

        def bear() -> None:
            if sim.healed:
                return
            sim.fired[name] += 1
            child = make(sim, parent)
            sim.say("%s is a %s of %s", child.name, name, parent.name)
            late = name == "clone" and sim.random.random() < 0.5
            child.run(sim.random.randint(0, 2 * sim.ttl_us) if late else 0)

        _suddenly(sim, parent, bear)

    return offspring


def _clone(sim: Simulation, parent: Process) -> Process:
    return parent.clone(alike=sim.random.random() < 0.5)


def _fork(name: str, *, bypass: bool) -> Fault:
    fork_between_calls = _offspring(name, lambda _, parent: parent.fork(bypass=bypass))

    @of_one
    def fork(sim: Simulation, parent: Process) -> None:
        if sim.random.random() < 0.5:
            fork_between_calls(sim)
            return
        readings = sim.random.randint(1, 4)

        def fork_in_call() -> None:
            if not sim.healed and len(sim.living) < MOST_PROCESSES:
                child = parent.fork_in_call(readings, bypass=bypass)
                if child is not None:
                    sim.fired[name] += 1
                    sim.say("%s is a %s of %s in the middle of a call", child.name, name, parent.name)

        parent.before_call = fork_in_call

    return fork


def _with_a_claim(sim: Simulation, process: Process, then: Callable[[], None]) -> None:
    """Let *process* release its lease and claim again; call *then* while it waits for the answer.

    The answer gets lost, or comes after that.
    """

    def waiting() -> None:
        if sim.random.random() < 0.7:
            sim.network.deafen(process, sim.random.randint(100_000, 5_000_000))
        sim.world.after(sim.random.randint(0, 1_500_000), then)

    process.before_claim = waiting
    if process.generator.lease is None:
        return

    def claim_anew() -> None:
        if not process.suspending:
            process.generator.suspend()
            process.generator.resume()

    sim.world.spawn(process, claim_anew)


@of_one
def unanswered(sim: Simulation, process: Process) -> None:
    """Clone a process whose claim was not answered yet: both continue with the claim."""

    def clone() -> None:
        if process.alive and not sim.healed and len(sim.living) < MOST_PROCESSES:
            if process.lease_manager.slot.asked[0]:
                sim.fired["unanswered"] += 1
            child = process.clone()
            sim.say("%s is a clone of %s, which is claiming", child.name, process.name)
            child.run()

    _with_a_claim(sim, process, clone)


@of_one
def suspended(sim: Simulation, process: Process) -> None:
    """Suspend a process, clone it, and resume both: no id may be repeated, without exception."""

    def suspend_and_clone() -> None:
        if process.suspending:
            return
        process.suspending = True
        process.generator.suspend()
        sim.world.sleep(sim.random.choice((0, sim.random.randint(0, sim.ttl_us))))
        # unless another thread has resumed it meanwhile
        still = process.generator._lease_manager.suspended and not process.generator.closed
        if still and not sim.healed and len(sim.living) < MOST_PROCESSES:
            sim.fired["suspended"] += 1
            child = process.clone(suspended=True)
            sim.say("%s is a clone of %s, which is suspended", child.name, process.name)
            child.generator.resume()
            child.run(sim.random.choice((0, 0, sim.random.randint(0, 2 * sim.ttl_us))))
        process.suspending = False
        process.generator.resume()

    def spawn() -> None:
        if process.alive:
            sim.world.spawn(process, suspend_and_clone)

    if sim.random.random() < 0.5:
        spawn()
    else:
        _with_a_claim(sim, process, spawn)


@of_one
def signal(sim: Simulation, interrupted: Process) -> None:
    """Run a signal handler that makes an id, in the middle of a call of the thread."""

    def handle() -> None:
        if sim.world.current is not None:
            sim.fired["signal"] += 1
            sim.say("a signal for %s", interrupted.name)
            interrupted.make(1)

    interrupted.armed = (sim.random.randint(1, 12), handle)


@of_one
def sigterm(sim: Simulation, ended: Process) -> None:
    """Close a generator in a signal handler, in the middle of a call or of close(), and perhaps once more."""
    times = sim.random.randint(1, 2)

    def handle() -> None:
        nonlocal times
        if sim.world.current is None or ended.lease_manager.conversation.busy is not None:
            # as CloseAtSignal does: later, when the thread talks to the store no more
            ended.armed = (1, handle)
            return
        sim.fired["sigterm"] += 1
        sim.say("SIGTERM for %s", ended.name)
        times -= 1
        ended.armed = (sim.random.randint(1, 12), handle) if times else None
        ended.generator.close()

    ended.armed = (sim.random.randint(1, 12), handle)
    sim.before_heal(sim.random.choice((0, 0, sim.ttl_us)), ended.stop)
    sim.start_again(ended)


class _Raising(logging.Filter):
    """The filter of an application that adds the id of a request, and raises outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("working outside of request context")


def logger(sim: Simulation) -> None:
    """Let every line of the log raise for a while, in all processes."""
    log, raising = logging.getLogger("snowredis"), _Raising()
    sim.fired["logger"] += 1
    log.addFilter(raising)
    log.disabled, logging.raiseExceptions = False, False

    def stop() -> None:
        log.removeFilter(raising)
        if not any(isinstance(each, _Raising) for each in log.filters):
            log.disabled, logging.raiseExceptions = True, True

    sim.before_heal(_window_us(sim), stop)


FAULTS: dict[str, Fault] = {
    "loss": _noise("loss", 0.6),
    "delay": _noise("delay", 0.4),
    "duplicate": _noise("duplicate", 0.5),
    "reorder": _noise("reorder", 0.5),
    "pause": pause,
    "starve": starve,
    "crash": crash,
    "release": release,
    "drop": drop,
    "skew": skew,
    "step": step,
    "redis_clock": redis.redis_clock,
    "ahead": redis.ahead,
    "rights": redis.rights,
    "wipe": redis.wipe,
    "evict": redis.evict,
    "down": redis.down,
    "outage": redis.outage,
    "snapshot": redis.snapshot,
    "rollback": redis.rollback,
    "failover": redis.failover,
    "split": redis.split,
    "moved": redis.moved,
    "again": redis.again,
    "boot": redis.boot,
    "boot_ahead": redis.boot_ahead,
    "elsewhere": redis.elsewhere,
    "unidentified": redis.servers_show("unidentified"),
    "constant": redis.servers_show("constant"),
    "proxy": redis.servers_show("proxy"),
    "fork": _fork("fork", bypass=False),
    "bypass": _fork("bypass", bypass=True),
    "clone": _offspring("clone", _clone),
    "unanswered": unanswered,
    "suspended": suspended,
    "signal": signal,
    "sigterm": sigterm,
    "logger": logger,
    "mixed": pool_faults.mixed,
    "deleted": pool_faults.deleted,
    "changed": pool_faults.changed,
    "changed_layout": pool_faults.changed_layout,
    "reclaim": reclaim,
    "heirs": heirs,
    "deposed": sequences.deposed,
    "twice": sequences.twice,
    "inherited": sequences.inherited,
    "released_late": sequences.released_late,
    "deleted_away": sequences.deleted_away,
    "relaned": sequences.relaned,
}
