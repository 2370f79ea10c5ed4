"""The bad moments: what is done to the fleet, and from when it can be known.

    with stage(directory, **moment.stage) as fleet:
        played = moment.play(fleet)

A worker that is killed can be told from a slow one when its lease ends. Everything else can be known at once, or at the
next heartbeat.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

import snowredis
from scripts._moments.stage import POOL, Stage, wait_until
from snowredis.snowflake.protocol import pool_keys

# workers renew after 0.85 to 1 of ttl / 6
HEARTBEATS_PER_TTL = 6
# 16 worker ids: 14 workers and the service leave one
SMALL_LAYOUT = "41/0/2/4/16"


class Played(NamedTuple):
    """Times in s since 1970: when it was done, and from when on it can be known from outside."""

    at_s: float
    known_s: float


@dataclass(frozen=True)
class Moment:
    """A bad moment.

    Attributes:
        name: short, for files and options.
        title: for tables.
        code: the condition of the pool's status that reports it; see snowredis/monitor/status.py.
        act: does it and returns from when on it can be known.
        deaths: how many workers die.
        stage: arguments of stage().
    """

    name: str
    title: str
    code: str
    act: Callable[[Stage], float]
    deaths: int = 0
    stage: Mapping[str, Any] = field(default_factory=dict)

    def play(self, fleet: Stage) -> Played:
        """Do it. Blocks until it is done, at most for a ttl; not until it can be known."""
        at_s = time.time()
        known_s = self.act(fleet)
        return Played(at_s, known_s)


def heartbeat_s(fleet: Stage) -> float:
    return fleet.ttl_s / HEARTBEATS_PER_TTL


def _kill(count: int) -> Callable[[Stage], float]:
    def kill(fleet: Stage) -> float:
        killed = fleet.workers[:count]
        for worker in killed:
            worker.signal(signal.SIGKILL)
        return fleet.lease_end_s(killed)

    return kill


def _suspend(fleet: Stage) -> float:
    suspended = fleet.workers[:1]
    suspended[0].signal(signal.SIGSTOP)
    # suspect: no heartbeat for half a ttl, while the lease is valid
    return fleet.lease_end_s(suspended) - fleet.ttl_s / 2


def _wipe(fleet: Stage) -> float:
    fleet.redis.ask("FLUSHALL")
    return time.time()


def _stop_redis(fleet: Stage) -> float:
    fleet.redis.kill(signal.SIGTERM)
    return time.time()


def _outage(fleet: Stage) -> float:
    """Stop Redis for longer than the reservations last, and start it again with its data."""
    fleet.redis.ask("SAVE")
    fleet.redis.kill()
    wait_until(time.time() + 1.2 * fleet.ttl_s)
    fleet.redis.start()
    # the first script raises the floor; within one heartbeat, a worker could still be adopted
    return time.time() + heartbeat_s(fleet)


def _other_layout(fleet: Stage) -> float:
    """Start a process with another layout, which the pool refuses."""
    with contextlib.suppress(snowredis.LayoutMismatch):
        snowredis.connect(fleet.url, pool=POOL, ttl=fleet.ttl_s, layout="twitter", label="other").next_id()
    return time.time()


def _hang_redis(fleet: Stage) -> float:
    fleet.redis.kill(signal.SIGSTOP)
    return time.time()


def _restore_old_copy(fleet: Stage) -> float:
    """Put the pool's hash back as it was two heartbeats before: a backup that a person restored."""
    key = pool_keys(POOL)[0]
    with contextlib.closing(redis.Redis(port=fleet.redis.port)) as client:
        copy: Any = client.dump(key)
        wait_until(time.time() + 2 * heartbeat_s(fleet))
        client.restore(key, 0, copy, replace=True)
    # a worker notices it with its next heartbeat; of 14, one renews soon
    return time.time() + heartbeat_s(fleet)


def _fill(fleet: Stage) -> float:
    fleet.add_workers(4)
    with contextlib.closing(snowredis.WorkerPool(fleet.url, POOL)) as pool:
        while pool.info().free:
            time.sleep(0.1)
    return time.time()


def _fail_over(fleet: Stage) -> float:
    """Promote the replica and let it take over the address, as a failover behind one address does."""
    assert fleet.standby is not None
    fleet.redis.kill()
    fleet.standby.ask("REPLICAOF", "NO", "ONE")
    fleet.point_to("standby.sock")
    return time.time() + heartbeat_s(fleet)


def _step_clock(fleet: Stage) -> float:
    fleet.workers[0].step_clock(-5000)
    return time.time() + heartbeat_s(fleet)


MOMENTS = {
    moment.name: moment
    for moment in (
        Moment("killed", "`kill -9` of one worker", "deaths", _kill(1), 1),
        Moment("killed-13", "`kill -9` of 13 of 14 workers", "deaths", _kill(13), 13),
        Moment("suspended", "SIGSTOP of one worker", "suspects", _suspend),
        Moment("wiped", "Redis wiped (FLUSHALL)", "floor", _wipe),
        Moment("redis-stopped", "Redis stopped", "redis-unavailable", _stop_redis),
        Moment("outage", "Redis away for longer than the reservations", "floor", _outage),
        Moment("no-lane", "the same without outage lanes", "no-ids", _outage, stage={"outage_reserve": 0}),
        Moment("other-layout", "a process with another layout", "mismatch", _other_layout),
        Moment("redis-hung", "Redis hung (SIGSTOP)", "redis-unavailable", _hang_redis),
        Moment("alarm", "pool restored from an old copy", "alarm", _restore_old_copy),
        Moment("full", "pool full", "full", _fill, stage={"layout": SMALL_LAYOUT}),
        Moment("failover", "failover to a replica", "floor", _fail_over, stage={"standby": True}),
        Moment("clock", "clock of one worker stepped back by 5 s", "clocks", _step_clock),
    )
}
