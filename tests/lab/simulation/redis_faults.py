"""Faults of Redis: it is unavailable, loses data, goes back in time, is doubled, or is another server.

LOSSES lose what Redis knew: nothing that changes a pool's settings is mixed with them, since after a loss
whoever comes first says what the settings are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from snowredis.errors import SnowredisError
from snowredis.snowflake.protocol.pool_config import pool_keys
from tests.lab.simulation.pool_faults import AtTheServer
from tests.lab.simulation.redis_model import CONSTANT, SHOWN, RedisModel
from tests.support.holder import create

if TYPE_CHECKING:
    from tests.lab.simulation.faults import Fault
    from tests.lab.simulation.schedule import Simulation

# what lets Redis forget something
LOSSES = (
    *("ahead", "wipe", "evict", "snapshot", "rollback", "failover", "split", "moved", "again", "boot"),
    *("deposed", "twice", "elsewhere", "boot_ahead"),
)
# what there is only where failover_slack is set
OF_SENTINEL = ("failover", "split", "deposed")
# what INFO says of a server, in a whole schedule or now and then
IDENTITIES = ("unidentified", "constant", "proxy")
# what a durability of "assured" rules out: two masters that both acknowledge, and a memory that goes back
NOT_ASSURED = ("rollback", "split", "deposed", "twice", "elsewhere")
# clocks of hosts are right where the Redis clock is not, since then nothing bounds how far one may be ahead
CLOCKS = ("skew", "step")
# how far ahead a Redis clock is that was not set yet, s
AHEAD_S = (3, 60, 3_600, 8 * 3_600)
# commands that scripts write with
WRITES = ("HSET", "HDEL", "HINCRBY", "UNLINK", "ZADD", "ZREM", "XADD")
# how long a server has run before anybody was sent to it, or how long it seems to have, at most
LONG_UPTIME_S = 100_000


def redis_clock(sim: Simulation) -> None:
    """Step Redis' clock; two servers, or one before and after, differ by skew_us at most."""
    sim.fired["redis_clock"] += 1
    sim.network.master.offset_us = sim.redis_offset_us()
    sim.say("clock of %s is off by %d ms", sim.network.master.name, sim.network.master.offset_us // 1000)


def ahead(sim: Simulation) -> None:
    """Let the Redis clock be ahead for some seconds, as before it is set at a boot; often a loss falls into them."""
    server, random = sim.network.master, sim.random
    if server.offset_us > sim.skew_us:
        return
    right_us, lasts_us = server.offset_us, random.randint(100_000, 2 * sim.ttl_us)
    if random.random() < 0.7 and sim.may_forget("ahead"):
        server.restart(random.choice(({}, server.data_at(sim.world.now_us - sim.lost_us(3 * sim.ttl_us)))))
        sim.went_unnoticed()
    sim.fired["ahead"] += 1
    server.offset_us += random.choice(AHEAD_S) * 1_000_000
    sim.ended_early = True
    sim.say("clock of %s is ahead by %d ms", server.name, server.offset_us // 1000)
    sim.before_heal(lasts_us, lambda: setattr(server, "offset_us", right_us))


def boot_ahead(sim: Simulation) -> None:
    """Boot a machine with its clock ahead: Redis and one process start there, then the clock is set right."""
    server, random = sim.network.master, sim.random
    if sim.fired["boot_ahead"] or server.offset_us > sim.skew_us or not sim.may_forget("boot_ahead"):
        return
    right_us, ahead_us = server.offset_us, random.choice(AHEAD_S) * 1_000_000
    server.restart(random.choice(({}, server.data_at(sim.world.now_us - sim.lost_us(3 * sim.ttl_us)))))
    sim.went_unnoticed()
    sim.ended_early, server.offset_us = True, right_us + ahead_us
    host = sim.new_host()
    host.offset_us = ahead_us
    sim.process_class(sim, host).run()
    sim.say("%s and a process boot with a clock that is ahead by %d ms", server.name, ahead_us // 1000)

    def set_right() -> None:
        server.offset_us, host.offset_us = right_us, 0
        # clones of the machine, too
        for process in [each for each in sim.living if each.host.name.rstrip("+") == host.name]:
            process.host.offset_us = 0
            if sim.options["rules"].policy != "backup":
                # it would raise errors, or wait, for hours: a person starts it again
                process.crash()

    sim.before_heal(random.randint(sim.ttl_us // 2, 3 * sim.ttl_us), set_right)


def elsewhere(sim: Simulation) -> None:
    """Let the address lead to another Redis, where a pool of this name was created."""
    if sim.fired["elsewhere"] or not sim.may_forget("elsewhere"):
        return
    other = RedisModel(sim.world, f"redis{len(sim.network.servers)}", sim.network.master.shows)
    other.offset_us, other.history = sim.redis_offset_us(), []
    sim.network.servers.append(other)
    with suppress(SnowredisError):
        create(AtTheServer(sim, other, sim.config), sim.world.now_us // 1000)
    holders = [process for process in sim.living if process.lease_manager.held is not None]
    sim.led_elsewhere = True
    sim.say("the address leads to another pool of this name")
    old, sim.network.master = sim.network.master, other
    old.up = False
    sim.went_back()
    sim.somebody_comes()

    def note_holders() -> None:
        # each holder that is heard of has renewed its lease by then
        is_shown = other.shows == SHOWN or sim.shows == CONSTANT
        heard = [each for each in holders if each.alive and not each.generator.closed and each.lease_manager.held]
        sim.had_holders = bool(heard) and is_shown and sim.config.durability == "detect" and len(sim.classes) == 1

    sim.before_heal(sim.ttl_us, note_holders)


def rights(sim: Simulation) -> None:
    """Refuse a command for a while: scripts end where they call it, and what they wrote before stays."""
    server = sim.network.master
    sim.fired["rights"] += 1
    server.refused = set(sim.random.sample(WRITES, sim.random.choice((1, 1, 2))))
    sim.say("%s refuses %s", server.name, ", ".join(sorted(server.refused)))
    sim.before_heal(sim.random.randint(200_000, 2 * sim.ttl_us), server.refused.clear)


def wipe(sim: Simulation) -> None:
    if sim.may_forget("wipe"):
        sim.wipe()


def evict(sim: Simulation) -> None:
    keys = pool_keys(sim.config.name)
    key = sim.random.choice(keys)
    if key != keys[0]:
        sim.fired["evict"] += 1
    elif not sim.may_forget("evict"):
        return
    sim.say("evict %s", key)
    sim.network.master.data.pop(key, None)


def _take_down(sim: Simulation, lasts_us: int) -> None:
    """Let the master be away for a while."""
    server = sim.network.master
    sim.fired["down"] += 1
    sim.say("%s is away", server.name)
    server.up = False
    sim.world.after(lasts_us, lambda: setattr(server, "up", True))


def down(sim: Simulation) -> None:
    _take_down(sim, sim.random.randint(200_000, 2 * sim.ttl_us))


def outage(sim: Simulation) -> None:
    """Let Redis be away for longer than reservations last, for all machines or for one."""
    random, process = sim.random, sim.someone()
    lasts_us = random.randint(sim.ttl_us // 2, 4 * sim.ttl_us)
    sim.fired["outage"] += 1
    if process is None or random.random() < 0.6:
        _take_down(sim, lasts_us)
        return
    name, strayed = process.host.name, sim.network.strayed
    sim.say("%s does not reach Redis", name)
    away = strayed.setdefault(name, RedisModel(sim.world, "away"))
    away.up = False

    def end() -> None:
        if strayed.get(name) is away:
            del strayed[name]

    sim.before_heal(lasts_us, end)


def _restart(sim: Simulation, name: str, *, clock_behind: bool) -> None:
    server, random = sim.network.master, sim.random
    if not sim.may_forget(name):
        return
    sim.went_unnoticed()
    lost_us = sim.lost_us(3 * sim.ttl_us)
    saved = server.data_at(sim.world.now_us - lost_us)
    server.up = False
    sim.say("%s dies", server.name)

    def restart() -> None:
        if sim.config.durability == "assured" and server is not sim.network.master:
            # deposed meanwhile: what it acknowledges now will be lost, and somebody gave his word that nothing is
            return
        sim.say("%s restarts from a snapshot", server.name)
        # another restart may have come in between
        sim.went_unnoticed()
        server.restart(saved if lost_us else server.data)
        if clock_behind:
            server.started_before(random.randint(1, LONG_UPTIME_S))
        sim.somebody_comes()

    sim.before_heal(random.choice((0, random.randint(0, 2 * sim.ttl_us))), restart)


def snapshot(sim: Simulation) -> None:
    """Restart Redis from an older snapshot, with another run_id."""
    _restart(sim, "snapshot", clock_behind=False)


def boot(sim: Simulation) -> None:
    """Restart Redis from an older snapshot, with a clock that is behind and is corrected before the first script."""
    _restart(sim, "boot", clock_behind=True)


def rollback(sim: Simulation) -> None:
    """Roll Redis back to a memory snapshot, with the same run_id."""
    server, random = sim.network.master, sim.random
    age_us = random.randint(0, 4 * sim.ttl_us)
    if not sim.may_forget("rollback"):
        return
    # where nothing can be seen, nothing rests on it
    if sim.config.durability != "none":
        sim.went_back()
    sim.say("%s goes back by %d ms", server.name, age_us // 1000)
    server.data = server.data_at(sim.world.now_us - age_us)


def _promote(sim: Simulation, *, lost_us: int, ran_s: int = 1, split_us: int = 0) -> None:
    """Let another server take over from the master, without its last writes.

    Args:
        ran_s: how long the new one has been running.
        split_us: how long the old master goes on answering some clients.
    """
    network, old, now_us = sim.network, sim.network.master, sim.world.now_us
    new = RedisModel(sim.world, f"redis{len(network.servers)}", old.shows)
    new.started_before(ran_s)
    new.offset_us = sim.redis_offset_us()
    new.data = old.data_at(now_us - lost_us)
    # to another replica of it that is behind it belongs what the old master did before
    new.history = [*old.history_until(now_us - lost_us), (now_us, new.copy_data())]
    network.servers.append(new)
    network.master = new
    sim.say("%s takes over from %s", new.name, old.name)

    def end() -> None:
        # what it acknowledged meanwhile is lost now
        sim.checker.lose_what_clones_did()
        old.up = False
        network.strayed.clear()

    sim.went_unnoticed()
    sim.somebody_comes()
    if not split_us:
        end()
        return
    for process in sim.living:
        if sim.random.random() < 0.5:
            network.strayed[process.host.name] = old
    sim.world.after(split_us, end)


def failover(sim: Simulation) -> None:
    if sim.may_forget("failover"):
        _promote(sim, lost_us=sim.lost_us(3_000_000))


def split(sim: Simulation) -> None:
    """Fail over; the deposed master continues to answer some clients, for failover_slack at most."""
    if not sim.network.strayed and sim.may_forget("split"):
        split_us = sim.random.randint(1, sim.slack_us)
        _promote(sim, lost_us=sim.lost_us(3_000_000), split_us=split_us)


def moved(sim: Simulation) -> None:
    """Move the address to another server that has run for long: a replica, or one that has read a backup.

    The pool has no setting for this. Sometimes no worker was alive for a while before.
    """
    random = sim.random
    if not sim.may_forget("moved"):
        return
    lost_us = sim.lost_us(random.choice((3_000_000, 3 * sim.ttl_us)))
    old = sim.network.master
    old.up = False

    def move() -> None:
        ran_s = random.choice((0, random.randint(0, 3 * sim.ttl_us // 1_000_000), LONG_UPTIME_S))
        _promote(sim, lost_us=lost_us, ran_s=ran_s)

    sim.before_heal(random.choice((0, 0, random.randint(0, 2 * sim.ttl_us))), move)


def again(sim: Simulation) -> None:
    """Depose the server for a while and promote it again, the same process, without the last writes."""
    server = sim.network.master
    if sim.may_forget("again"):
        sim.went_unnoticed()
        sim.say("%s is master again", server.name)
        server.data = server.data_at(sim.world.now_us - sim.lost_us(3_000_000))
        server.promote()
        sim.somebody_comes()


def servers_show(name: str) -> Fault:
    """Start or stop INFO showing the identity that the schedule drew for this class."""

    def change(sim: Simulation) -> None:
        if sim.steady:
            return
        sim.fired[name] += 1
        for server in sim.network.servers:
            server.show(SHOWN if server.shows == sim.shows else sim.shows)
        sim.say("INFO shows: %s", sim.network.master.shows)

    return change
