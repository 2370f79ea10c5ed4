"""What goes wrong with Redis: it is away, forgets, goes back in time, or is two.

LOSSES lose what Redis knew: no pool with strangers is mixed with them, since after a loss whoever
comes first says what the pool's settings are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from snowredis.lease.scripts import pool_keys
from tests.simulation.redis_model import RedisModel

if TYPE_CHECKING:
    from tests.simulation.schedule import Simulation

# what lets Redis forget something
LOSSES = ("wipe", "evict", "snapshot", "rollback", "failover", "split")
# what there is only where failover_slack is set
OF_SENTINEL = ("failover", "split")


def redis_clock(sim: Simulation) -> None:
    """Two servers, or one before and after, differ by no more than redis_skew."""
    sim.fired["redis_clock"] += 1
    sim.network.master.offset_us = sim.redis_offset_us()
    sim.say("clock of %s is off by %d ms", sim.network.master.name, sim.network.master.offset_us // 1000)


def wipe(sim: Simulation) -> None:
    sim.fired["wipe"] += 1
    sim.say("wipe")
    sim.network.master.wipe()


def evict(sim: Simulation) -> None:
    key = sim.random.choice(pool_keys(sim.config.name))
    sim.fired["evict"] += 1
    sim.say("evict %s", key)
    sim.network.master.data.pop(key, None)


def down(sim: Simulation) -> None:
    server = sim.network.master
    sim.fired["down"] += 1
    sim.say("%s is away", server.name)
    server.up = False
    sim.world.after(sim.random.randint(200_000, 2 * sim.ttl_us), lambda: setattr(server, "up", True))


def snapshot(sim: Simulation) -> None:
    """Restarted from what it saved some time ago; another run_id."""
    server, random = sim.network.master, sim.random
    data = server.data_at(sim.world.now_us - random.randint(0, 3 * sim.ttl_us))
    server.up = False
    sim.fired["snapshot"] += 1
    sim.say("%s dies", server.name)

    def restart() -> None:
        sim.say("%s restarts from a snapshot", server.name)
        server.restart(data)

    sim.before_heal(random.choice((0, random.randint(0, 2 * sim.ttl_us))), restart)


def rollback(sim: Simulation) -> None:
    """Back to a memory snapshot, with the same run_id."""
    server, random = sim.network.master, sim.random
    oldest = 4 * sim.ttl_us
    if sim.config.guard_rollbacks:
        # guard_rollbacks sees what is more than a ttl old
        age_us = random.randint(sim.ttl_us + 2 * sim.skew_us + 10_000, oldest)
    else:
        age_us = random.randint(0, oldest)
        sim.lift()
    sim.fired["rollback"] += 1
    sim.say("%s goes back by %d ms", server.name, age_us // 1000)
    server.data = server.data_at(sim.world.now_us - age_us)


def _promote(sim: Simulation, *, split_us: int) -> None:
    network, random = sim.network, sim.random
    old = network.master
    new = RedisModel(sim.world, f"redis{len(network.servers)}")
    new.started_s -= 1_000_000
    new.offset_us = sim.redis_offset_us()
    lag_us = random.choice((0, 100_000, random.randint(0, 3_000_000)))
    new.data = old.data_at(sim.world.now_us - lag_us)
    # to another replica of it that is behind it belongs what the old master did before
    new.history = [*old.history_until(sim.world.now_us - lag_us), (sim.world.now_us, new.copy_data())]
    network.servers.append(new)
    network.master = new
    sim.say("%s takes over from %s", new.name, old.name)

    def end() -> None:
        old.up = False
        network.strayed.clear()

    if not split_us:
        end()
        return
    for process in sim.living:
        if random.random() < 0.5:
            network.strayed[process.host.name] = old
    sim.world.after(split_us, end)


def failover(sim: Simulation) -> None:
    sim.fired["failover"] += 1
    _promote(sim, split_us=0)


def split(sim: Simulation) -> None:
    """The deposed master goes on answering to some, no longer than failover_slack."""
    if not sim.network.strayed:
        sim.fired["split"] += 1
        _promote(sim, split_us=sim.random.randint(1, sim.slack_us))
