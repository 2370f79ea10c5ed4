"""Faults of settings: those of a pool with living workers change, or a process starts with other settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from snowredis.errors import REFUSED, LayoutMismatch, SnowredisError
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol.administration import Administration, Ends
from snowredis.snowflake.protocol.messages import ClaimRequest, Reply, Seen
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.process import Process
from tests.support.holder import create

if TYPE_CHECKING:
    from tests.lab.simulation.redis_model import RedisModel
    from tests.lab.simulation.schedule import Simulation

_Reply = TypeVar("_Reply", bound=Reply)
CHANGES = ("mixed", "deleted", "changed", "changed_layout", "deleted_away", "relaned")
OTHER_TTLS_MS = (4_000, 5_000, 9_000, 12_000)


class AtTheServer(Administration):
    """Store of a person with a shell on the server's machine, without a network between.

    Args:
        unkept: scripts whose effect is not put on disk.
    """

    where = "simulated"

    def __init__(self, sim: Simulation, server: RedisModel, config: PoolConfig, unkept: Sequence[str] = ()) -> None:
        super().__init__(config, random_bytes=sim.random.randbytes)
        self._sim, self._server, self._unkept, self._script = sim, server, unkept, ""

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        self._script = script.name
        source, tracer = self._sim.network.edit(script.name, script.source), self._sim.tracer
        if tracer is None:
            return self._server.eval(source, keys, args)
        call = tracer.sent("person", script.name, args)
        tracer.arrives(self._server, keys[0])
        reply = self._server.eval(source, keys, args)
        tracer.ran(self._server, keys[0], call, reply)
        return reply

    def _lasting(self, change: Callable[[], _Reply], *, strict: bool = False) -> _Reply:
        reply = change()
        if self._script not in self._unkept:
            self._server.save()
        return reply

    def close(self) -> None:
        """Nothing to close."""


def mixed(sim: Simulation) -> None:
    """Start a process with another layout or ttl."""
    layout = sim.config.layout
    other = sim.random.choice(
        (
            replace(sim.config, ttl_ms=sim.config.ttl_ms + 1000),
            replace(sim.config, layout=replace(layout, tick_ms=layout.tick_ms + 1)),
            replace(sim.config, failover_slack_ms=sim.config.failover_slack_ms + 1),
        )
    )
    stranger = Process(sim, sim.new_host(), other)

    def come() -> None:
        for _ in range(5):
            stranger.make(1)
            sim.world.sleep(300_000)
        if LayoutMismatch.__name__ in stranger.errors:
            sim.fired["mixed"] += 1
        stranger.crash()

    sim.world.spawn(stranger, come)


def _come_back(sim: Simulation, name: str, config: PoolConfig, *, created: bool) -> None:
    """The pool is made anew with *config*, and processes come that have it; the others do not live for ever."""
    store = AtTheServer(sim, sim.network.master, config)
    now_ms = sim.world.now_us // 1000
    try:
        if created:
            create(store, now_ms)
        else:
            # its answer gets lost
            store.ask(ClaimRequest(Seen(), now_ms, sim.random.randbytes(16).hex(), "{}"))
    except SnowredisError as error:
        # a process with the settings of before came first, or a right is missing
        sim.say("the pool does not come back: %s", type(error).__name__)
        if error.code in REFUSED or (name == "changed_layout" and isinstance(error, LayoutMismatch)):
            # a right is missing, or the clock of Redis was set back since
            sim.world.at(sim.world.now_us + 1_000_000, lambda: _come_back(sim, name, config, created=created))
        return
    sim.fired[name] += 1
    sim.say("the pool comes back with ttl %d ms", config.ttl_ms)
    strangers = [process for process in sim.living if process.config != config]
    sim.replace_config(config)
    for stranger in strangers:
        if sim.healed:
            stranger.crash()
        else:
            sim.before_heal(sim.random.randint(0, 2 * sim.ttl_us), stranger.crash)
    for _ in range(sim.random.randint(1, sim.size)):
        sim.process_class(sim, sim.new_host()).run(sim.random.randint(0, 1_000_000))


def end_pool(sim: Simulation, then: Callable[[], None]) -> bool:
    """Give the pool the earliest end, and call *then* when it has come, if that is soon enough.

    Returns whether it has an end.
    """
    server = sim.network.master
    try:
        store = AtTheServer(sim, server, sim.config)
        reply = store.delete(sim.world.now_us // 1000)
    except SnowredisError as error:
        sim.say("the pool is not deleted: %s", type(error).__name__)
        return False
    if not isinstance(reply, Ends):
        return False
    sim.say("the pool ends at %d ms", reply.end_ms)
    end_us = sim.world.now_us if reply.over else reply.end_ms * 1000 - server.offset_us + 1_000
    sim.ends_us = end_us
    if end_us < sim.heal_us - 1_000_000:
        sim.world.at(end_us, then)
    return True


def _with_another_ttl(sim: Simulation) -> PoolConfig:
    ttl_ms = sim.random.choice([ttl_ms for ttl_ms in OTHER_TTLS_MS if ttl_ms != sim.config.ttl_ms])
    return replace(sim.config, ttl_ms=ttl_ms)


def deleted(sim: Simulation) -> None:
    """`snowredis pool delete`, and the pool comes back with another ttl."""
    server = sim.network.master
    if server.up and not server.refused and not sim.ends_us:
        config, created = _with_another_ttl(sim), sim.random.random() < 0.5
        end_pool(sim, lambda: _come_back(sim, "deleted", config, created=created))
        if sim.random.random() < 0.7:
            # the person stops the workers first, or soon after
            for process in sim.living:
                sim.before_heal(sim.random.randint(0, sim.ttl_us), process.stop)


def changed_layout(sim: Simulation) -> None:
    """`snowredis pool delete`, and a pool with another layout starts at the end, as soon as its ids are all above."""
    server = sim.network.master
    if not server.up or server.refused or sim.ends_us:
        return
    layout = sim.config.layout
    later_ms = sim.random.choice((0, sim.config.ttl_ms // 2, sim.config.ttl_ms))
    another = replace(layout, worker_bits=layout.worker_bits + 1)
    if later_ms:
        another = replace(layout, epoch_ms=layout.epoch_ms + later_ms)
    config, created = replace(sim.config, layout=another), sim.random.random() < 0.5
    if end_pool(sim, lambda: _come_back(sim, "changed_layout", config, created=created)):
        sim.say("the layout is another one then")


def changed(sim: Simulation) -> None:
    """A wipe in the middle of a change of ttl. The next pool cannot know of reservations longer than its own."""
    server, config = sim.network.master, _with_another_ttl(sim)
    if server.up and not server.refused:
        if config.ttl_ms < sim.config.ttl_ms:
            sim.lift()
        server.wipe()
        _come_back(sim, "changed", config, created=False)
