"""Clones of processes: of one that is running, that waits for the answer to its claim, or that is suspended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.lab.simulation.process import MOST_PROCESSES, Process

if TYPE_CHECKING:
    from tests.lab.simulation.schedule import Simulation


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


def unanswered(sim: Simulation) -> None:
    """Clone a process whose claim was not answered yet: both continue with the claim."""
    process = sim.someone()
    if process is None:
        return

    def clone() -> None:
        if process.alive and not sim.healed and len(sim.living) < MOST_PROCESSES:
            if process.lease_manager.slot.asked[0]:
                sim.fired["unanswered"] += 1
            child = process.clone()
            sim.say("%s is a clone of %s, which is claiming", child.name, process.name)
            child.run()

    _with_a_claim(sim, process, clone)


def suspended(sim: Simulation) -> None:
    """Suspend a process, clone it, and resume both: no id may be repeated, without exception."""
    process = sim.someone()
    if process is None:
        return

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
