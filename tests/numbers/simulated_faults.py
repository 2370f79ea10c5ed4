"""The faults of segment schedules. Each is a function that injects one fault, which ends by itself or at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.lab.simulation.redis_faults import AHEAD_S, WRITES
from tests.lab.simulation.world import START_US
from tests.numbers.simulated_process import SegmentProcess, TagRedis

if TYPE_CHECKING:
    from tests.numbers.simulation import SegmentSimulation

# how long faults come, in a schedule
FAULTY_US = 20_000_000

Fault = Callable[["SegmentSimulation"], None]


def _network(sim: SegmentSimulation) -> Any:
    return sim.random.choice(sim.networks)


def _noise(attribute: str) -> Fault:
    def make_noise(sim: SegmentSimulation) -> None:
        network = _network(sim)
        network.longest_delay_us = 8_000_000
        sim.disturb(network, attribute, 0.6, sim.random.randint(200_000, 8_000_000))

    return make_noise


def _suddenly(sim: SegmentSimulation, process: SegmentProcess, action: Callable[[], None]) -> None:
    """Do *action* now, or in the middle of a call."""
    if sim.random.random() < 0.4:
        action()
    else:
        process.armed = lambda: None if sim.healed else action()


def pause(sim: SegmentSimulation) -> None:
    process = sim.someone()
    if process is not None:
        sim.fired["pause"] += 1
        until_us = sim.world.now_us + sim.random.randint(500_000, 15_000_000)
        process.paused_until_us = min(until_us, START_US + FAULTY_US)
        sim.say("%s is paused", process.name)


def crash(sim: SegmentSimulation) -> None:
    process = sim.someone()
    if process is None:
        return
    crashed = process

    def die() -> None:
        sim.fired["crash"] += 1
        sim.say("%s crashes", crashed.name)
        sim.world.after(sim.random.randint(0, 3_000_000), sim.start_one)
        crashed.crash()

    _suddenly(sim, crashed, die)


def close(sim: SegmentSimulation) -> None:
    process = sim.someone()
    if process is not None:
        sim.fired["close"] += 1
        process.generator.close()
        sim.world.after(sim.random.randint(0, 3_000_000), sim.start_one)


def down(sim: SegmentSimulation) -> None:
    sim.take_down(_network(sim).master, sim.random.randint(200_000, 8_000_000))


def ahead(sim: SegmentSimulation) -> None:
    """Let Redis' clock be ahead for some seconds, as before it is set at a boot; often a loss falls into them."""
    network, random = _network(sim), sim.random
    server = network.master
    if network.strayed:
        # the slack of a deposed master is measured with this clock
        return
    sim.fired["ahead"] += 1
    if random.random() < 0.7:
        server.restart(random.choice(({}, server.data_at(sim.world.now_us - _lost_us(sim, 20_000_000)))))
    server.offset_us = random.choice(AHEAD_S) * 1_000_000
    sim.say("clock of %s is ahead by %d ms", server.name, server.offset_us // 1000)
    sim.world.after(random.randint(100_000, 8_000_000), lambda: setattr(server, "offset_us", 0))


def rights(sim: SegmentSimulation) -> None:
    """Refuse commands for a while: scripts end where they call one, and what they wrote before stays."""
    server = _network(sim).master
    sim.fired["rights"] += 1
    server.refused = set(sim.random.sample((*WRITES, "DEL"), sim.random.choice((1, 1, 2))))
    sim.say("%s refuses %s", server.name, ", ".join(sorted(server.refused)))
    sim.world.after(sim.random.randint(200_000, 8_000_000), server.refused.clear)


def wipe(sim: SegmentSimulation) -> None:
    sim.fired["wipe"] += 1
    server = _network(sim).master
    sim.say("%s is wiped", server.name)
    server.wipe()


def _lost_us(sim: SegmentSimulation, most_us: int) -> int:
    return sim.random.choice((0, sim.random.randint(0, most_us)))


def snapshot(sim: SegmentSimulation) -> None:
    sim.fired["snapshot"] += 1
    server = _network(sim).master
    saved = server.data_at(sim.world.now_us - _lost_us(sim, 20_000_000))
    server.up = False

    def restart() -> None:
        sim.say("%s restarts from a snapshot", server.name)
        server.restart(saved)

    sim.world.after(sim.random.randint(0, 3_000_000), restart)


def rollback(sim: SegmentSimulation) -> None:
    if sim.fired["rollback"]:
        return
    sim.fired["rollback"] += 1
    server = _network(sim).master
    sim.say("%s is rolled back in place", server.name)
    before = server.next_number
    server.data = server.data_at(sim.world.now_us - sim.random.randint(0, 10_000_000))
    server.shown = 0
    # what is handed out again before a process shows that it was forgotten cannot be prevented
    sim.checker.forgotten[server.index] = range(server.next_number, before)


def _promote(sim: SegmentSimulation, network: Any, *, split_us: int = 0, lost_us: int) -> None:
    new = TagRedis(sim, network.master.index, f"{network.master.name}+")
    new.offset_us = sim.random.randint(-200_000, 200_000)
    # clients come to the new master at once: the slack counts from there
    sim.promote(network, new, lost_us=lost_us, split_us=split_us)


def failover(sim: SegmentSimulation) -> None:
    sim.fired["failover"] += 1
    # to a replica, or to a server that has read a backup
    _promote(sim, _network(sim), lost_us=_lost_us(sim, sim.random.choice((3_000_000, 20_000_000))))


def split(sim: SegmentSimulation) -> None:
    network = _network(sim)
    if not network.strayed:
        sim.fired["split"] += 1
        slack_us = sim.slack_ms * 1000
        split_us = sim.random.randint(1, max(1, slack_us - 500_000))
        _promote(sim, network, split_us=split_us, lost_us=_lost_us(sim, 3_000_000))


def again(sim: SegmentSimulation) -> None:
    sim.fired["again"] += 1
    server = _network(sim).master
    sim.say("%s is master again", server.name)
    server.data = server.data_at(sim.world.now_us - _lost_us(sim, 3_000_000))
    server.promote()


def failback(sim: SegmentSimulation) -> None:
    """Let a former master be the master again, with the data that it had."""
    network = _network(sim)
    former = [server for server in network.servers if server is not network.master]
    if former and not network.strayed:
        sim.fired["failback"] += 1
        network.master.up = False
        network.master = former[-1]
        network.master.up = True
        network.master.promote()
        sim.say("%s is the master again", network.master.name)


def _offspring(name: str, make: Callable[[SegmentProcess], SegmentProcess]) -> Fault:
    def bear(sim: SegmentSimulation) -> None:
        process = sim.someone()
        if process is None or len(sim.living) >= 12:
            return
        parent = process

        def fork() -> None:
            sim.fired[name] += 1
            child = make(parent)
            sim.say("%s is a %s of %s", child.name, name, parent.name)
            child.run()

        _suddenly(sim, parent, fork)

    return bear


def suspended(sim: SegmentSimulation) -> None:
    """Clone a process that was suspended before; both resume."""
    process = sim.someone()
    if process is None or len(sim.living) >= 12:
        return
    parent = process
    parent.generator.suspend()

    def snapshot_machine() -> None:
        if parent.alive and parent.generator._suspended and not sim.healed:
            sim.fired["suspended"] += 1
            clone = parent.clone()
            sim.say("%s is a clone of %s", clone.name, parent.name)
            clone.run()
            clone.generator.resume()
        parent.generator.resume()

    sim.world.after(sim.random.randint(0, 3_000_000), snapshot_machine)


def signal(sim: SegmentSimulation) -> None:
    process = sim.someone()
    if process is not None:
        interrupted = process

        def handle() -> None:
            sim.fired["signal"] += 1
            interrupted.make(1)

        process.armed = handle


FAULTS: dict[str, Fault] = {
    "loss": _noise("loss"),
    "delay": _noise("delay"),
    "duplicate": _noise("duplicate"),
    "reorder": _noise("reorder"),
    "wipe": wipe,
    "snapshot": snapshot,
    "failover": failover,
    "split": split,
    "again": again,
    "failback": failback,
    "rollback": rollback,
    "pause": pause,
    "crash": crash,
    "down": down,
    "close": close,
    "fork": _offspring("fork", lambda parent: parent.fork()),
    "bypass": _offspring("bypass", lambda parent: parent.fork(bypass=True)),
    "suspended": suspended,
    "signal": signal,
    "ahead": ahead,
    "rights": rights,
}
