"""A pool's layout is changed while processes claim, renew and release: no old reservation reaches a new one.

The shipped Lua on a Redis in memory that restarts and fails over. The proof of change-layout is about times, so that is
what is checked: reservations of the old layout end before the first one of the new layout begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch
from snowredis.servers.scripts import Script
from snowredis.snowflake.administration import Administration, Early, Ends
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.replies import Granted, Renewed, Reply, Settling
from tests.simulation.redis_model import RedisModel
from tests.simulation.world import World
from tests.support.holder import Holder

OLD = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
NEW = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=7)
_OVER = "local over = v[1] and (v[9] == 'now' or v[9] == 'then' and is_past(ends))"
_Reply = TypeVar("_Reply", bound=Reply)
Edits = tuple[tuple[str, str], ...]


class Store(Administration):
    where = "simulated"

    def __init__(self, server: RedisModel, config: PoolConfig, edits: Edits) -> None:
        super().__init__(config)
        self._server, self._edits = server, edits

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        source = script.source
        for fragment, instead in self._edits:
            assert source.count(fragment) <= 1, fragment
            source = source.replace(fragment, instead)
        return self._server.eval(source, keys, args)

    def close(self) -> None: ...


@dataclass
class Outcome:
    """Ends of old reservations, beginnings of new ones, and how many new ones there are."""

    old_until_ms: int = 0
    new_from_ms: int = 1 << 60
    granted: int = 0

    @property
    def wrong(self) -> bool:
        return self.old_until_ms > self.new_from_ms


# what is left out, and what repeats without it: fragments of the scripts, and what stands there instead
RULES: dict[str, Edits] = {
    "end on every copy": ((_OVER, "local over = v[1] and ends <= now"),),
    "not before marks and floors": (
        ("  elseif at ~= 0 and at < earliest then\n", "  elseif false then\n"),
        ("at = math.max(at, has_end and 0 or earliest)", "at = at == 0 and earliest or at"),
    ),
}


class KeptStore(Store):
    """Store of a person whose changes are on disk when the call returns.

    Attributes:
        keeps: False: nothing is put on disk.
    """

    keeps = True

    def _lasting(self, change: Callable[[], _Reply], *, strict: bool = False) -> _Reply:
        reply = change()
        if self.keeps:
            self._server.save()
        return reply


def run(seed: int, *, without: str = "") -> Outcome:
    """Let a person set an end, and Redis start from its disk, or from a backup of it, while processes have lanes."""
    world = World(seed)
    random = world.random
    server = RedisModel(world, "redis")
    edits = RULES.get(without, ())
    old_config = PoolConfig(name="p", layout=OLD, ttl_ms=1_000, outage_reserve_ms=8_000)
    stores = {
        layout: KeptStore(server, replace(old_config.with_layout(layout), outage_reserve_ms=8_000), edits)
        for layout in (OLD, NEW)
    }
    for store in stores.values():
        store.keeps = without != "end on every copy"

    def now_ms() -> int:
        return world.now_us // 1000

    stores[OLD].create(now_ms())
    server.save()
    holders = [(layout, Holder(stores[layout], now_ms)) for layout in (OLD, OLD, OLD, NEW, NEW)]
    outcome, backups, changed = Outcome(), [server.disk], False
    for _ in range(200):
        world.run(world.now_us + random.randint(1, 400_000))
        event = random.random()
        if event < 0.04:
            server.crash()
        elif event < 0.06 and not changed:
            # a copy of before a change that was made is never restored, nor one that was made after the copy that was
            # restored before: nothing shows that
            del backups[random.randrange(len(backups)) + 1 :]
            server.restart({key: dict(value) for key, value in backups[-1].items()})
        elif event < 0.14 and not changed:
            with contextlib.suppress(LayoutMismatch):
                at_ms = now_ms() + random.randint(1, 2_000)
                reply = stores[OLD].end(now_ms(), layout=NEW, at_ms=at_ms)
                if isinstance(reply, Early):
                    at_ms = reply.earliest_ms + random.randint(1, 2_000)
                    stores[OLD].end(now_ms(), layout=NEW, at_ms=at_ms)
                backups.append(server.disk)
        layout, holder = random.choice(holders)
        with contextlib.suppress(LayoutMismatch):
            if holder.worker < 0 or random.random() < 0.2:
                holder.token, holder.worker = f"{random.getrandbits(120):x}", -1
                if isinstance(holder.ask_claim(), Granted):
                    holder.token = f"{random.getrandbits(120):x}"
                    holder.claim()
            else:
                holder.ask_renew()
            if holder.worker < 0:
                continue
            if layout == OLD:
                outcome.old_until_ms = max(outcome.old_until_ms, holder.until_ms, holder.outage_ms)
            else:
                changed, outcome.granted = True, outcome.granted + 1
                outcome.new_from_ms = min(outcome.new_from_ms, *holder.lanes_ms)
    world.close()
    return outcome


def test_no_crash_or_backup_lets_two_layouts_meet() -> None:
    outcomes = [run(seed) for seed in range(25)]
    assert [seed for seed, outcome in enumerate(outcomes) if outcome.wrong] == []
    assert sum(outcome.granted > 0 for outcome in outcomes) > 3


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_what_a_person_did_is_needed(rule: str) -> None:
    # from a seed after which each soon is
    assert any(run(seed, without=rule).wrong for seed in range(50, 130))


def test_a_pool_that_is_rolled_back_to_before_its_change_waits_and_raises_an_alarm() -> None:
    world = World(0)
    server = RedisModel(world, "redis")
    old_config = PoolConfig(name="p", layout=OLD, ttl_ms=3_000, outage_reserve_ms=0)
    old, new = (Store(server, old_config.with_layout(layout), ()) for layout in (OLD, NEW))

    def now_ms() -> int:
        return world.now_us // 1000

    old.create(now_ms())
    planned = old.end(now_ms(), layout=NEW, at_ms=now_ms() + 1_000)
    assert isinstance(planned, Ends)
    before = server.copy_data()
    world.run(planned.end_ms * 1000)
    first, second = (Holder(new, now_ms).claim() for _ in range(2))
    server.data = before
    reply = first.ask_renew()
    assert isinstance(reply, Renewed)
    assert reply.alarm is not None
    # the worker id of the second one is not known any more
    assert reply.floor_ms >= second.until_ms
    assert isinstance(Holder(new, now_ms).ask_claim(), Settling)
    assert isinstance(second.ask_renew(), Renewed)
    world.close()
