"""Faults: the action of each on a fleet, how long it lasts, and which processes need not make ids meanwhile.

A fault is begun by a function and ended, some time later, by what that function answers. Targets
are exclusive: a worker, the server or the proxy suffers one fault at a time.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab.chaos.runs import ENDINGS, KINDS

if TYPE_CHECKING:
    from tests.lab.chaos.driver import Fleet
    from tests.lab.chaos.slots import Slot


@dataclass(frozen=True)
class Begun:
    """lasts_s: until *end* is called. excuses: who may be without ids then, and while it recovers."""

    lasts_s: float = 0.0
    end: Callable[[], None] = lambda: None
    excuses: str = "nobody"


@dataclass(frozen=True)
class Fault:
    """target: "worker", "redis" or "proxy". weight: how often it is in a deck.

    forgets: Redis' state is lost or goes back. unseen: to a state that shows no loss, so that only another identity
    of the server tells of it. clock: steps this kind of clock: "worker", "redis" (within
    failover_slack) or "hours" (Redis', by any distance).
    """

    name: str
    target: str
    begin: Callable[[Fleet, random.Random, Slot], Begun]
    weight: int = 1
    forgets: bool = False
    unseen: bool = False
    clock: str = ""


# --- workers ---------------------------------------------------------------------------------------


def kill(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    slot.signal(signal.SIGKILL)
    return Begun(rng.uniform(0, 0.5), slot.restart, "target")


def stop_long(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    slot.signal(signal.SIGSTOP)
    return Begun(fleet.ttl_s * rng.uniform(1.1, 1.8), lambda: slot.signal(signal.SIGCONT), "target")


def stop_short(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    slot.signal(signal.SIGSTOP)
    return Begun(fleet.ttl_s * rng.uniform(0.01, 0.6), lambda: slot.signal(signal.SIGCONT), "target")


def terminate(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Send SIGTERM to a part of the fleet, and start each of these processes again when it has ended."""
    for one in [slot, *(other for other in fleet.idle_slots() if other is not slot and rng.random() < 0.3)]:
        fleet.end_and_restart(one)
    return Begun(excuses="target")


def fork(kind: str) -> Callable[[Fleet, random.Random, Slot], Begun]:
    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        life_s = rng.uniform(0.05, 1.5)
        slot.tell(f"{KINDS.index(kind)} {rng.choice(ENDINGS)} {life_s}")
        return Begun(life_s)

    return begin


def clock(low_s: float, high_s: float) -> Callable[[Fleet, random.Random, Slot], Begun]:
    """Step the clock and step it back at the end, so that each fault is a step in both directions."""

    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        offset_s = rng.choice((-1, 1)) * low_s * (high_s / low_s) ** rng.random()
        slot.clock.set(offset_s)
        return Begun(rng.uniform(0.02, 1.0), lambda: slot.clock.set(0), "target")

    return begin


# --- the server ------------------------------------------------------------------------------------


def shutdown(*, save: bool) -> Callable[[Fleet, random.Random, Slot], Begun]:
    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        fleet.server.shutdown(save=save)
        return Begun(rng.uniform(0, 0.5 * fleet.ttl_s), fleet.server.start, "all")

    return begin


def kill_server(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.server.kill()
    return Begun(rng.uniform(0, 1.3 * fleet.ttl_s), fleet.server.restart_empty, "all")


def away(*, empty: bool) -> Callable[[Fleet, random.Random, Slot], Begun]:
    """Take the server away for longer than any reservation but those of outage lanes."""

    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        server = fleet.server
        if empty:
            server.kill()
        else:
            server.signal(signal.SIGSTOP)
        back = server.restart_empty if empty else lambda: server.signal(signal.SIGCONT)
        return Begun(fleet.ttl_s * rng.uniform(1.3, 3), back, "all")

    return begin


def restore(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.server.restore_old()
    return Begun(excuses="all")


def boot(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Start from an old snapshot, on a machine whose clock is behind until just before the first request."""
    server, clock = fleet.server, fleet.server_clock
    server.kill()
    offset_s = clock.offset_s
    clock.set(offset_s - rng.uniform(60, 20_000))
    server.start_from_backup()
    clock.set(offset_s)
    server.move()
    return Begun(excuses="all")


def move_to_replica(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Move the address to a replica that was started long before, without the last writes."""
    fleet.server.start_replica()
    unseen_s = rng.uniform(0, 0.3)

    def move() -> None:
        fleet.server.promote()
        time.sleep(unseen_s)
        fleet.server.move()

    return Begun(fleet.ttl_s * rng.uniform(0.3, 1.3), move, "all")


def move_to_backup(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Move the address to a server that has read a backup and has run for a while."""
    fleet.server.start_from_backup()
    return Begun(fleet.ttl_s * rng.uniform(0.3, 1.3), fleet.server.move, "all")


def stop_server(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.server.signal(signal.SIGSTOP)
    return Begun(fleet.ttl_s * rng.uniform(0.1, 1.3), lambda: fleet.server.signal(signal.SIGCONT), "all")


def pause_clients(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    lasts_s = fleet.ttl_s * rng.uniform(0.1, 1.0)
    over_s = time.monotonic() + lasts_s
    fleet.server.client.execute_command("CLIENT", "PAUSE", round(lasts_s * 1000), "ALL")
    # nothing ends it early: the command for that would be paused, too
    return Begun(lasts_s, lambda: time.sleep(max(0.0, over_s - time.monotonic())), "all")


def command(*words: str, excuses: str = "all") -> Callable[[Fleet, random.Random, Slot], Begun]:
    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        fleet.server.client.execute_command(*words)
        return Begun(excuses=excuses)

    return begin


def delete(index: int) -> Callable[[Fleet, random.Random, Slot], Begun]:
    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        fleet.server.client.delete(fleet.keys[index])
        return Begun(excuses="all" if index == 0 else "nobody")

    return begin


def server_skew(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Set the server's clock off by half of failover_slack at most, so that two readings differ by no more than that.

    More is not allowed while state can be lost: a floor counts on the Redis clock.
    """
    fleet.server_clock.set(rng.uniform(-0.5, 0.5) * fleet.skew_s)
    return Begun()


def server_hours(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.server_clock.set(rng.choice((-1, fleet.forward)) * 0.5 * 20_000 ** rng.random())
    return Begun(fleet.ttl_s * rng.uniform(0.1, 0.8), lambda: fleet.server_clock.set(0), "all")


# --- the network -----------------------------------------------------------------------------------


def cut(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.proxy.cut()
    return Begun()


def network(mode: str) -> Callable[[Fleet, random.Random, Slot], Begun]:
    def begin(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
        fleet.proxy.set(mode, rng.uniform(0.001, 0.7))

        def end() -> None:
            fleet.proxy.set("pass")
            if mode == "swallow":
                fleet.proxy.cut()

        return Begun(fleet.ttl_s * rng.uniform(0.1, 1.3), end, "proxied")

    return begin


FAULTS = (
    Fault("kill -9 a worker", "worker", kill, 4),
    Fault("stop a worker beyond its ttl", "worker", stop_long, 5),
    Fault("stop a worker shortly", "worker", stop_short, 3),
    Fault("SIGTERM storm", "worker", terminate, 2),
    Fault("os.fork", "worker", fork("os.fork"), 3),
    Fault("fork inside next_ids", "worker", fork("fork inside next_ids"), 4),
    Fault("fork in C", "worker", fork("fork in C"), 3),
    Fault("multiprocessing", "worker", fork("multiprocessing"), 2),
    Fault("clone of a suspended process", "worker", fork("clone of a suspended process"), 3),
    Fault("step a worker's clock by milliseconds", "worker", clock(0.001, 0.05), 3, clock="worker"),
    Fault("step a worker's clock by seconds", "worker", clock(0.05, 20), 4, clock="worker"),
    Fault("step a worker's clock by minutes to hours", "worker", clock(60, 20_000), 3, clock="worker"),
    Fault("SHUTDOWN NOSAVE and start", "redis", shutdown(save=False), forgets=True),
    Fault("SHUTDOWN SAVE and start", "redis", shutdown(save=True), forgets=True),
    Fault("kill -9 redis and start", "redis", kill_server, forgets=True),
    Fault("kill -9 redis for longer than a ttl", "redis", away(empty=True), 2, forgets=True),
    Fault("stop redis for longer than a ttl", "redis", away(empty=False), 2),
    Fault("restore an old RDB", "redis", restore, 2, forgets=True, unseen=True),
    Fault("boot with a late clock", "redis", boot, 2, forgets=True, unseen=True, clock="redis"),
    Fault("move to a replica", "redis", move_to_replica, 2, forgets=True, unseen=True),
    Fault("move to a backup", "redis", move_to_backup, 2, forgets=True, unseen=True),
    Fault("FLUSHALL", "redis", command("FLUSHALL"), forgets=True),
    Fault("DEL the pool's hash", "redis", delete(0), forgets=True),
    Fault("DEL the index of leases", "redis", delete(1)),
    Fault("DEL the events", "redis", delete(2)),
    Fault("SCRIPT FLUSH", "redis", command("SCRIPT", "FLUSH", excuses="nobody")),
    Fault("CLIENT KILL", "redis", command("CLIENT", "KILL", "TYPE", "normal", excuses="nobody"), 2),
    Fault("CLIENT PAUSE", "redis", pause_clients),
    Fault("stop redis", "redis", stop_server),
    Fault("step redis' clock within failover_slack", "redis", server_skew, 3, clock="redis"),
    Fault("step redis' clock by up to hours", "redis", server_hours, 6, clock="hours"),
    Fault("cut connections", "proxy", cut, 3),
    Fault("stall the network", "proxy", network("stall"), 2),
    Fault("delay the network", "proxy", network("delay"), 2),
    Fault("swallow answers", "proxy", network("swallow"), 4),
)


# --- when which may come; the driver has the clock -------------------------------------------------

# the last of the faults: Redis forgets nothing more, and its clock is stepped by hours
HOURS_PART, FORWARD_PART = 0.1, 0.02


def phases(faults: int, kinds: Sequence[Fault]) -> list[tuple[int, list[Fault]]]:
    """Return the phases of a run: number of faults, and their kinds. The fleet recovers between phases.

    A floor counts on the Redis clock, so that clock may be stepped further than failover_slack only while no state
    is lost, and workers' clocks not along with it. A lease that is granted at a late Redis time lasts as long, so
    steps forward come last: nobody is killed after them.
    """
    stepped = any(fault.clock == "hours" for fault in kinds)
    hours = max(3, int(faults * HOURS_PART)) if stepped else 0
    forward = max(1, int(faults * FORWARD_PART)) if stepped else 0
    everything = [fault for fault in kinds if fault.clock != "hours"]
    kept = [fault for fault in kinds if not fault.forgets and fault.clock in ("", "hours")]
    steps = [fault for fault in kinds if fault.clock == "hours"]
    return [(faults - hours, everything), (hours - forward, kept), (forward, steps)]


def decks(rng: random.Random, kinds: Sequence[Fault]) -> Iterator[Fault]:
    """Every kind before any comes again, then decks in which kinds are as frequent as they weigh."""
    deck = list(kinds)
    while deck:
        rng.shuffle(deck)
        yield from deck
        deck = [fault for fault in kinds for _ in range(fault.weight)]
