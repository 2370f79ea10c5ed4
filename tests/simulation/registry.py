"""Shards that get their numbers of a registry, in simulated time: the shipped Lua and the shipped flow of registration.

Creators, some of which are killed or paused between two steps; processes that come and go; a Redis of the registry that
is wiped, restarted, fails over with lost writes, or is away; and a person, who opens the registry after every pool that
exists has confirmed its number. One seed determines everything. The checker looks for a number that two pools used.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.process.names import ProcessName
from snowredis.registry.registration import RegisteredStore
from snowredis.registry.registry import NO_NUMBER, NumberPlace, Registry, registry_key
from snowredis.servers.scripts import Script
from snowredis.snowflake.administration import Administration
from snowredis.snowflake.protocol import PoolConfig, pool_keys, signature_fields
from snowredis.snowflake.record_files import family_name
from tests.simulation.redis_model import RedisModel
from tests.simulation.world import World

# the parent of all processes
PARENT = ProcessName("", 1, "0")
LAYOUT = Layout(timestamp_bits=41, datacenter_bits=6, backup_bits=0, worker_bits=6, sequence_bits=10)
SECOND_US = 1_000_000
LASTS_US = 900 * SECOND_US
SHARDS = 10
# script, or "" for every registry script; what stands there; what stands there without the rule
RULES: dict[str, tuple[str, str, str]] = {
    "closed after a loss": ("registry_number", "if registry.closed ~= '' then", "if false then"),
    "identity": ("", "v[2] ~= id then", "false then"),
    "highest number": (
        "registry_number",
        "registry.next = math.max(registry.next, number + 1, highest + 1)",
        "registry.next = math.max(registry.next, 1)",
    ),
    "one pool for a number": ("registry_number", "if not mine and (", "if false and ("),
    "one number for a name": ("registry_number", "registered.id ~= id and registered.confirmed > 0", "false"),
    "first confirmed while open": (
        "registry_number",
        "if first and registry.closed ~= ''",
        "if false and registry.closed ~= ''",
    ),
    "taken up again": ("registry_number", "store(mine and r.taken or now, now)", "commit(registry)"),
    "confirmed before it is used": ("", "", ""),
    "crash record of a registration": ("", "", ""),
}


@dataclass
class Actor:
    """Owner of tasks: a program that may be killed."""

    name: str
    alive: bool = True
    paused_until_us: int = 0


class Simulation:
    """One schedule.

    Args:
        without: the rule that is switched off.
        pauses: how likely a creator is paused between two steps, for up to a third of the schedule.
        renumbered: a person deletes a pool now and then, frees its number, and creates it again with another one.

    Attributes:
        used: number -> the registrations that a process of a pool went by.
    """

    def __init__(self, seed: int, *, without: str = "", pauses: float = 0.3, renumbered: bool = False) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.without, self.pauses, self.renumbered = without, pauses, renumbered
        self.registry_server = RedisModel(self.world, "registry")
        self.registry_server.history = []
        self.pool_servers = [RedisModel(self.world, f"pools {n}") for n in range(2)]
        self.used: dict[int, set[str]] = defaultdict(set)
        self.losses = self.refusals = self.openings = self.renumberings = 0
        # name of a crash record -> registration of the pool of the process that left it; and how many processes live
        self.records: dict[str, str] = {}
        self.living: Counter[str] = Counter()

    def run(self) -> list[str]:
        """Run the schedule; return what is wrong."""
        world, random = self.world, self.random
        try:
            self._spawn("person", self._person)
            for index in range(SHARDS):
                # some names are used for a pool on each server
                name = f"shard-{index if random.random() < 0.8 else 0}"
                server = random.choice(self.pool_servers)
                self._come(name, server, random.randint(0, LASTS_US * 2 // 3))
            for _ in range(random.randint(1, 4)):
                world.after(random.randint(LASTS_US // 20, LASTS_US * 3 // 4), self._lose)
            for _ in range(2):
                at_us = random.randint(0, LASTS_US)
                world.after(at_us, lambda: self._away(True))
                world.after(at_us + random.randint(1, 120) * SECOND_US, lambda: self._away(False))
            world.run(world.now_us + LASTS_US)
        finally:
            world.close()
        return [f"number {n} was used by {sorted(who)}" for n, who in self.used.items() if len(who) > 1]

    def _spawn(self, name: str, run: Callable[[], object], delay_us: int = 0) -> Actor:
        actor = Actor(name)
        self.world.spawn(actor, run, delay_us)
        return actor

    def _come(self, name: str, server: RedisModel, delay_us: int) -> None:
        """Let a creator come, be killed or paused perhaps, and come again."""
        actor = self._spawn(f"creator of {name}", lambda: self._create(name, server), delay_us)
        if self.random.random() < 0.3:
            died_us = delay_us + self.random.randint(0, 200_000)

            def kill() -> None:
                actor.alive = False
                self.world.kill_tasks(actor)
                self._come(name, server, self.random.randint(0, 60 * SECOND_US))

            self.world.after(died_us, kill)
        elif self.random.random() < self.pauses:
            at_us, lasts_us = delay_us + self.random.randint(0, 20_000), self.random.randint(0, LASTS_US // 3)

            def pause() -> None:
                actor.paused_until_us = self.world.now_us + lasts_us

            self.world.after(at_us, pause)

    def _lose(self) -> None:
        server, random = self.registry_server, self.random
        self.losses += 1
        now_us = self.world.now_us
        old = server.data_at(now_us - random.choice((0, 1, random.randint(0, 300))) * SECOND_US)
        match random.choice(("wipe", "snapshot", "failover")):
            case "wipe":
                server.wipe()
            case "snapshot":
                server.restart(old)
            case _:
                server.data = old
                server.promote()

    def _away(self, away: bool) -> None:
        self.registry_server.up = not away

    # --- programs ----------------------------------------------------------------------------------

    def _registry(self) -> SimRegistry:
        return SimRegistry(self)

    def _store(self, server: RedisModel, name: str) -> RegisteredStore:
        config = PoolConfig(name=name, layout=LAYOUT, registry="world")
        store: Any = SimStore(self, server, config)
        return RegisteredStore(store, self._registry(), wanted=None)

    def _create(self, name: str, server: RedisModel) -> None:
        while True:
            try:
                pool = self._store(server, name)
                pool.register(lambda: self.world.now_us // 1000, random_bytes=self.random.randbytes)
                break
            except StoreUnavailable:
                pass
            except LayoutMismatch as refused:
                # ShardNumberRefused, or another creator of this name deleted the pool and created it again meanwhile
                self.refusals += 1
                if "another pool of this name" in str(refused):
                    return
                if "Delete it: snowredis pool delete" in str(refused):
                    for key in pool_keys(name):
                        server.data.pop(key, None)
            self.world.sleep(3 * SECOND_US)
        for _ in range(2):
            self._spawn(f"process of {name}", lambda: self._live(name, server))
            self.world.sleep(self.random.randint(0, LASTS_US // 3))

    def _live(self, name: str, server: RedisModel) -> None:
        """A process of the pool, for a while; then it is killed."""
        store = self._store(server, name)
        ends_us = self.world.now_us + self.random.randint(0, LASTS_US // 2)
        self.living[name] += 1
        while self.world.now_us < ends_us:
            try:
                store.prepare()
                registration, record = store.config.registration, self._record_of(store)
                # while the pool's Redis is away, it may go on with the lease of one that was killed
                self.used[store.config.datacenter] |= {registration, self.records.setdefault(record, registration)}
            except (StoreUnavailable, LayoutMismatch):
                self.refusals += 1
            self.world.sleep(5 * SECOND_US)
        self.living[name] -= 1

    def _record_of(self, store: RegisteredStore) -> str:
        """Return the name of the crash records that processes of this pool find."""
        if self.without == "crash record of a registration":
            return f"{store.where} {store.config.name}"
        return family_name(store, PARENT)

    def _renumber(self, registry: SimRegistry, server: RedisModel) -> None:
        """Delete a pool without processes, free its number, and create the pool again."""
        for key in list(server.data):
            name = key.partition("{")[2].rstrip("}")
            found = None if self.living[name] else registry.find(name)
            if found is not None and found[1].confirmed_ms:
                number, record = found
                for each in pool_keys(name):
                    server.data.pop(each, None)
                registry.free(number, confirmed_ms=record.confirmed_ms)
                self.renumberings += 1
                self._come(name, server, 0)
                return

    def _person(self) -> None:
        registry = self._registry()
        created = False
        while not created:
            with contextlib.suppress(StoreUnavailable):
                registry.create(first=1)
                created = True
        while True:
            self.world.sleep(self.random.randint(5, 30) * SECOND_US)
            fields = self.registry_server.data.get(registry_key("world"), {})
            if self.renumbered and fields.get("closed") == "":
                with contextlib.suppress(StoreUnavailable):
                    self._renumber(registry, self.random.choice(self.pool_servers))
            if not self.registry_server.up or fields.get("closed") == "":
                continue
            try:
                for server in self.pool_servers:
                    for key, pool in list(server.data.items()):
                        self._confirm(registry, key, pool)
                if registry_key("world") in self.registry_server.data:
                    registry.open()
                    self.openings += 1
            except StoreUnavailable:
                continue

    def _confirm(self, registry: SimRegistry, key: str, pool: dict[str, Any]) -> None:
        """Confirm the number of a pool, as registration.py does."""
        stored = signature_fields(pool.get("signature", ""))
        _, _, registration = stored.get("registry", "").partition("/")
        if registration:
            highest = int(pool.get("highest_number", NO_NUMBER))
            name = key.partition("{")[2].rstrip("}")
            first = "highest_number" not in pool
            registry.confirm(name, registration, int(stored["datacenter"]), highest=highest, first=first, where="")


class SimRegistry(Registry):
    """A client of the simulated registry: requests and replies take time, and some are lost."""

    where = "simulated"

    def __init__(self, sim: Simulation) -> None:
        super().__init__("world", NumberPlace.of(LAYOUT), random_bytes=sim.random.randbytes)
        self._sim = sim

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return call(self._sim, self._sim.registry_server, script, keys, args)

    def _fields(self, *names: str) -> tuple[int, dict[str, str]]:
        self._sim.world.sleep(self._sim.random.randint(100, 2_000))
        if not self._sim.registry_server.up:
            raise StoreUnavailable("simulated", "away")
        fields = self._sim.registry_server.data.get(self._keys[0], {})
        return self._sim.world.now_us // 1000, {name: fields[name] for name in names if name in fields}

    def after_fork(self) -> None: ...

    def close(self) -> None: ...


class SimStore(Administration):
    locator = "simulated"

    def __init__(self, sim: Simulation, server: RedisModel, config: PoolConfig) -> None:
        super().__init__(config, random_bytes=sim.random.randbytes)
        self._sim, self._server, self.where = sim, server, server.name

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return call(self._sim, self._server, script, keys, args)

    def close(self) -> None: ...

    def stored(self, field: str) -> str:
        self._sim.world.sleep(self._sim.random.randint(100, 2_000))
        if field == "highest_number" and self._sim.without == "confirmed before it is used":
            return "1"
        text: str = self._server.data.get(pool_keys(self.config.name)[0], {}).get(field, "")
        return text


def call(
    sim: Simulation, server: RedisModel, script: Script, keys: Sequence[str], args: Sequence[str | int]
) -> list[str]:
    """Run a script on a simulated server, without the rule that is switched off."""
    where, fragment, instead = RULES.get(sim.without, ("", "", ""))
    source = script.source
    if fragment and script.name.startswith("registry") and where in ("", script.name):
        assert source.count(fragment) == 1, fragment
        source = source.replace(fragment, instead)
    sim.world.sleep(sim.random.randint(100, 2_000))
    if not server.up or sim.random.random() < 0.03:
        raise StoreUnavailable("simulated", "away")
    reply = server.eval(source, keys, args)
    sim.world.sleep(sim.random.randint(100, 2_000))
    if sim.random.random() < 0.03:
        raise StoreUnavailable("simulated", "no reply")
    return reply
