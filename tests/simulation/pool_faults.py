"""Faults of settings: those of a pool with living workers change, or a process starts with other settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from snowredis.errors import LayoutMismatch
from snowredis.servers.scripts import Script
from snowredis.snowflake.administration import Administration, Kept
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig
from snowredis.snowflake.replies import Reply, Seen
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.redis_model import RedisModel
    from tests.simulation.schedule import Simulation

_Reply = TypeVar("_Reply", bound=Reply)
CHANGES = ("mixed", "deleted", "volatile", "changed", "deleted_away", "relaned")
OTHER_TTLS_MS = (4_000, 5_000, 9_000, 12_000)


class AtTheServer(Administration):
    """Store of a person with a shell on the server's machine, without a network between.

    Args:
        unkept: scripts whose effect is not put on disk; "undo": of change_layout only that.
    """

    where = "simulated"

    def __init__(self, sim: Simulation, server: RedisModel, config: PoolConfig, unkept: Sequence[str] = ()) -> None:
        super().__init__(config, random_bytes=sim.random.randbytes)
        self._sim, self._server, self._unkept, self._script = sim, server, unkept, ""

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        self._script = script.name
        return self._server.eval(self._sim.network.edit(script.name, script.source), keys, args)

    def _lasting(self, change: Callable[[], _Reply], undo: Callable[[], object] | None = None) -> _Reply:
        reply = change()
        if ("undo" if type(reply) is Kept else self._script) not in self._unkept:
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
            replace(sim.config, redis_skew_ms=sim.config.redis_skew_ms + 1),
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
    sim.fired[name] += 1
    sim.say("the pool comes back with ttl %d ms", config.ttl_ms)
    store = AtTheServer(sim, sim.network.master, config)
    now_ms = sim.world.now_us // 1000
    if created:
        store.create(now_ms)
    else:
        # its answer gets lost
        store.claim(ClaimRequest(sim.random.randbytes(16).hex(), now_ms, now_ms, 0, "{}"), Seen())
    strangers = sim.living
    sim.replace_config(config)
    for stranger in strangers:
        sim.before_heal(sim.random.randint(0, 2 * sim.ttl_us), stranger.crash)
    for _ in range(sim.random.randint(1, sim.size)):
        sim.process_class(sim, sim.new_host()).run(sim.random.randint(0, 1_000_000))


def _with_another_ttl(sim: Simulation) -> PoolConfig:
    ttl_ms = sim.random.choice([ttl_ms for ttl_ms in OTHER_TTLS_MS if ttl_ms != sim.config.ttl_ms])
    return replace(sim.config, ttl_ms=ttl_ms)


def deleted(sim: Simulation) -> None:
    """`snowredis pool delete`, and the pool comes back with another ttl."""
    server = sim.network.master
    if server.up and not server.refused:
        AtTheServer(sim, server, sim.config).delete(sim.world.now_us // 1000)
        sim.say("the pool is deleted")
        _come_back(sim, "deleted", _with_another_ttl(sim), created=sim.random.random() < 0.5)


def volatile(sim: Simulation) -> None:
    """Delete the pool; memory gets short and Redis evicts what has an expiry; a person creates the pool again."""
    server = sim.network.master
    if server.up and not server.refused:
        AtTheServer(sim, server, sim.config).delete(sim.world.now_us // 1000)
        server.evict_volatile()
        sim.say("the pool is deleted, and keys are evicted")
        _come_back(sim, "volatile", _with_another_ttl(sim), created=True)


def changed(sim: Simulation) -> None:
    """A wipe in the middle of a change of ttl. The next pool cannot know of reservations longer than its own."""
    server, config = sim.network.master, _with_another_ttl(sim)
    if server.up and not server.refused:
        if config.ttl_ms < sim.config.ttl_ms:
            sim.lift()
        server.wipe()
        _come_back(sim, "changed", config, created=False)
