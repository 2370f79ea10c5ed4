"""Faults that are a sequence: several things go wrong one after the other, as late as they may. Once in a schedule.

What happens at random seldom comes so close to the limits of the rules. Each has as many newcomers as the pool has
worker ids, so that one of them gets that of the holder that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from snowredis.errors import SnowredisError
from tests.lab.simulation.pool_faults import AtTheServer, end_pool
from tests.lab.simulation.redis_model import RedisModel
from tests.support.holder import create

if TYPE_CHECKING:
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from tests.lab.simulation.process import Process
    from tests.lab.simulation.schedule import Simulation

# where each process must have an outage lane that ends before the schedule does
WITH_OUTAGE_LANE = ("released_late", "deleted_away", "relaned", "inherited")


def _begin(sim: Simulation, name: str) -> Process | None:
    """Return the holder that it happens to; None if there is none, or it happened already."""
    holders = [process for process in sim.living if process.lease_manager.held is not None]
    if sim.fired[name] or not holders:
        return None
    holder = sim.random.choice(holders)
    sim.fired[name] += 1
    sim.say("%s: %s", name, holder.name)
    return holder


def _cut_off(sim: Simulation, *processes: Process) -> Callable[[], None]:
    """Let Redis be away for the machines of these processes; return what ends that."""
    return sim.network.cut_off(*{process.host.name for process in processes})


def _newcomers(sim: Simulation) -> list[Process]:
    found = [sim.process_class(sim, sim.new_host()) for _ in range(sim.config.layout.workers)]
    for process in found:
        process.host.offset_us = sim.lead_us
        process.run(sim.random.randint(0, 200_000))
    return found


def _at(sim: Simulation, after_us: int, action: Callable[[], object]) -> None:
    """Do it after some time, unless everything has healed by then."""

    def act() -> None:
        if not sim.healed:
            action()

    sim.world.after(after_us, act)


def deposed(sim: Simulation) -> None:
    """Fail over; the deposed master, whose clock is ahead, extends every lease as late as it may answer."""
    network, old, holders = sim.network, sim.network.master, sim.living
    if not any(process.lease_manager.held for process in holders):
        return
    if sim.fired["deposed"] or network.strayed or not sim.may_forget("deposed"):
        return
    old.offset_us = sim.skew_us // 2
    new = RedisModel(sim.world, f"redis{len(network.servers)}", old.shows)
    new.offset_us, new.data, new.history = -sim.skew_us // 2, old.copy_data(), []
    network.servers.append(new)
    network.master = new
    sim.went_unnoticed()
    for process in holders:
        process.host.offset_us = sim.lead_us + 2 * sim.skew_us
        network.strayed[process.host.name] = old
    # it lets the new master notice at once
    sim.process_class(sim, sim.new_host()).run()

    def renew() -> None:
        for process in holders:
            if process.alive:
                sim.world.spawn(process, process.generator._beat)

    def end() -> None:
        # what it acknowledged meanwhile is lost now
        sim.checker.lose_what_clones_did()
        old.up = False
        if not sim.healed:
            _cut_off(sim, *holders)
            _newcomers(sim)

    _at(sim, sim.slack_us - 5_000, renew)
    sim.world.after(sim.slack_us, end)


def twice(sim: Simulation) -> None:
    """Wipe Redis twice; a holder misses what is between, and those who came then miss what follows."""
    holder = _begin(sim, "twice")
    if holder is None:
        return
    sim.wipe()
    come_back, came = _cut_off(sim, holder), _newcomers(sim)
    floor_us = sim.ttl_us + sim.lead_us + sim.skew_us + sim.slack_us

    def again() -> None:
        sim.wipe()
        _cut_off(sim, *came)
        come_back()
        sim.world.spawn(holder, holder.generator._beat)

    _at(sim, sim.random.choice((3_500_000, floor_us + 1_000_000)), again)


def inherited(sim: Simulation) -> None:
    """Kill a process in an outage, just after it made an id, while two start on its machine."""
    holder = _begin(sim, "inherited")
    if holder is None:
        return
    come_back = _cut_off(sim, holder)

    def end() -> None:
        if not holder.alive:
            return
        holder.make(2)
        for _ in range(2):
            start(sim.process_class(sim, holder.host))
        holder.crash()

    def start(heir: Process) -> None:
        sim.world.spawn(heir, lambda: heir.make(1))
        heir.run()

    _at(sim, sim.random.randint(0, 2 * sim.ttl_us), lambda: sim.world.spawn(holder, end))
    sim.before_heal(4 * sim.ttl_us, come_back)


def released_late(sim: Simulation) -> None:
    """Release a lease after an outage in which its outage lane was used; a newcomer gets it, in the next outage."""
    holder = _begin(sim, "released_late")
    if holder is None:
        return
    come_back = _cut_off(sim, holder)
    holder.starved_until_us = sim.heal_us

    def close() -> None:
        come_back()
        holder.stop()
        _at(sim, 100_000, come)

    def come() -> None:
        came = _newcomers(sim)
        _at(sim, sim.ttl_us // 2, lambda: _cut_off(sim, *came))

    _at(sim, sim.ttl_us + sim.lead_us + sim.random.randint(1_000_000, 3_000_000), close)


def _deleted_away(sim: Simulation, name: str, new_config: Callable[[], PoolConfig]) -> None:
    """Delete the pool and create it again while a holder does not reach Redis, and goes on in its outage lane."""
    holder = _begin(sim, name) if sim.network.master.up else None
    if holder is None:
        return
    _cut_off(sim, holder)

    def come_back() -> None:
        config = new_config()
        try:
            create(AtTheServer(sim, sim.network.master, config), sim.world.now_us // 1000)
        except SnowredisError as error:
            # a process with the settings of before came first, or a right is missing
            sim.say("the pool does not come back: %s", type(error).__name__)
            return
        others = [process for process in sim.living if process is not holder]
        sim.replace_config(config)
        for other in others:
            if other.config != config:
                sim.before_heal(sim.random.randint(0, 2 * sim.ttl_us), other.crash)
        came = _newcomers(sim)
        _at(sim, sim.ttl_us // 2, lambda: _cut_off(sim, *came))

    end_pool(sim, come_back)


def deleted_away(sim: Simulation) -> None:
    """Create it again as it was."""
    _deleted_away(sim, "deleted_away", lambda: sim.config)


def relaned(sim: Simulation) -> None:
    """Create it again with other lanes: the outage lane of the holder may be an ordinary lane of the new pool."""

    def other_lanes() -> PoolConfig:
        layout = replace(sim.config.layout, backup_bits=sim.config.layout.backup_bits + 1)
        return replace(sim.config, **sim.random.choice(({"outage_reserve_ms": 0}, {"layout": layout})))

    _deleted_away(sim, "relaned", other_lanes)
