"""The outage lane of a worker id, in every store: what is reserved, kept, lowered and granted again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, LayoutMismatch
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.snowflake.administration import Changing, Deleted, Early, PoolAdministration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Created, Granted, LossReason, Lost, Renewed, Settling
from tests.lease.conftest import CONFIG, TTL_MS, Place, open_place, really_wait, wall_ms
from tests.simulation.pool_faults import AtTheServer
from tests.simulation.stage import Stage
from tests.support.holder import Holder, fresh_hex
from tests.support.pools import open_outage_lanes
from tests.support.records import change_record
from tests.support.servers import RedisServer

DAY_MS = 24 * 3600 * 1000
LEAD_MS = SKEW_MS = TTL_MS // 12
FLOOR_MS = TTL_MS + LEAD_MS + SKEW_MS
OUTAGE_FLOOR_MS = DAY_MS + LEAD_MS + SKEW_MS
SLACK_MS = 40
THREE = Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10)
WITH_LANE = replace(CONFIG, layout=THREE, outage_reserve_ms=DAY_MS)


@pytest.fixture(params=["memory", "fakeredis", "redis"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from open_place(request, WITH_LANE)


@pytest.fixture
def pool(place: Place) -> Place:
    return place.created()


@pytest.fixture(params=["memory", "fakeredis"])
def stepped(request: pytest.FixtureRequest) -> Iterator[Place]:
    for place in open_place(request, WITH_LANE):
        yield place.created()


def opens(holder: Holder) -> int:
    return holder.lanes_ms[-1]


def is_reserved(holder: Holder) -> bool:
    return holder.outage_ms > opens(holder)


# --- claim and renew --------------------------------------------------------------------------------


def test_a_claim_reserves_the_highest_lane_for_a_day_and_the_others_for_a_ttl(pool: Place) -> None:
    before = pool.now_ms()
    holder = pool.holder().claim()
    assert holder.lanes_ms == (0, 0, 0, 0)
    assert before + TTL_MS <= holder.until_ms <= pool.now_ms() + TTL_MS
    assert before + DAY_MS <= holder.outage_ms <= pool.now_ms() + DAY_MS


def test_a_renewal_extends_both_and_never_shortens_one(pool: Place) -> None:
    holder = pool.holder().claim()
    until_ms, outage_ms = holder.until_ms, holder.outage_ms
    pool.elapse(30)
    holder.ask_renew()
    assert holder.until_ms >= until_ms + 30
    assert holder.outage_ms >= outage_ms + 30
    outage_ms = holder.outage_ms
    holder.ask_renew(ahead_ms=-10_000)
    assert holder.outage_ms == outage_ms


def test_a_clock_that_runs_ahead_is_capped_in_the_outage_lane_too(pool: Place) -> None:
    holder = pool.holder().claim(ahead_ms=10**10)
    assert holder.outage_ms <= pool.now_ms() + LEAD_MS + DAY_MS


def test_the_same_claim_again_answers_the_same_outage_lane(pool: Place) -> None:
    first = pool.holder().claim()
    again = Holder(pool.store, pool.now_ms, token=first.token).claim()
    assert opens(again) == opens(first)
    assert again.outage_ms >= first.outage_ms


def test_the_outage_lane_of_a_dead_holder_is_granted_from_its_end(pool: Place) -> None:
    dead = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    heir = pool.holder().claim()
    assert opens(heir) >= dead[heir.worker].outage_ms
    # the others are open
    assert max(heir.lanes_ms[:-1]) <= pool.now_ms()
    # it is reserved as soon as there is something to reserve
    assert is_reserved(heir) == (heir.outage_ms > dead[heir.worker].outage_ms)
    heir.ask_renew()
    assert is_reserved(heir)


def test_claims_prefer_worker_ids_whose_outage_lane_is_open(pool: Place) -> None:
    killed, released = pool.holder().claim(), pool.holder().claim()
    pool.elapse(TTL_MS + SLACK_MS)
    assert released.release()
    assert pool.holder().claim().worker == released.worker
    # then one that was never used
    assert pool.holder().claim().worker == 2
    assert pool.holder().claim().worker == 3
    assert pool.holder().claim().worker == killed.worker


# --- release ----------------------------------------------------------------------------------------


def test_a_release_lowers_the_outage_lane_to_what_was_used(pool: Place) -> None:
    holder = pool.holder().claim()
    used = pool.now_ms() - 7
    assert holder.release(0, 0, 0, used)
    heir = pool.holder().claim()
    assert heir.worker == holder.worker
    assert heir.lanes_ms == (0, 0, 0, used)


def test_a_release_lowers_no_lane_whose_end_is_not_the_callers(pool: Place) -> None:
    """The reply to the last renewal was lost: a copy of this process may have it."""
    holders = [pool.holder().claim() for _ in range(4)]
    holder = holders[1]
    before = holder.until_ms, holder.outage_ms
    pool.elapse(20)
    holder.ask_renew()
    after = holder.until_ms, holder.outage_ms
    holder.until_ms, holder.outage_ms = before
    assert holder.release()
    heir = pool.holder().claim()
    assert heir.worker == holder.worker
    assert min(heir.lanes_ms[:-1]) >= after[0]
    assert opens(heir) >= after[1]


def test_an_outage_lane_that_the_holder_does_not_have_is_not_lowered(pool: Place) -> None:
    dead = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    heir = pool.holder().claim(ahead_ms=-2 * TTL_MS)
    assert not is_reserved(heir)
    assert heir.release()
    for other in dead:
        if other.worker != heir.worker:
            other.ask_renew()
    next_heir = pool.holder().claim()
    assert next_heir.worker == heir.worker
    assert opens(next_heir) >= dead[heir.worker].outage_ms


# --- refused ----------------------------------------------------------------------------------------


def lost_to_another(pool: Place) -> tuple[Holder, Holder]:
    """Return a holder whose worker id somebody else has, and the other one."""
    dead = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    heir = pool.holder().claim()
    return dead[heir.worker], heir


def test_whoever_lost_the_worker_id_is_not_told_that_it_was_copied(pool: Place) -> None:
    holder, _ = lost_to_another(pool)
    answer = holder.ask_renew()
    assert isinstance(answer, Lost)
    assert answer.reason == LossReason.REASSIGNED


def test_a_copy_whose_outage_lane_was_released_is_told_that_it_was_copied(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    holder = holders[2]
    copy = replace(holder)
    assert holder.release(pool.now_ms(), 0, 0, 0)
    assert pool.holder().claim().worker == holder.worker
    answer = copy.ask_renew()
    assert isinstance(answer, Lost)
    assert answer.reason == LossReason.COPIED


def test_a_later_holder_is_not_told_so_for_an_earlier_release(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    assert holders[2].release(0, 0, 0, 0)
    pool.elapse(20)
    later = pool.holder().claim()
    assert later.worker == 2
    pool.elapse(TTL_MS + SLACK_MS)
    for holder in holders:
        if holder.worker != 2:
            holder.ask_renew()
    assert pool.holder().claim().worker == 2
    answer = later.ask_renew()
    assert isinstance(answer, Lost)
    assert answer.reason == LossReason.REASSIGNED


# --- losses -----------------------------------------------------------------------------------------


def test_after_a_wipe_a_living_holder_keeps_and_extends_both(pool: Place) -> None:
    holder = pool.holder().claim()
    before = holder.until_ms, opens(holder), holder.outage_ms
    pool.wipe()
    pool.elapse(20)
    assert holder.ask_renew().adopted
    assert holder.until_ms >= before[0]
    assert opens(holder) == before[1]
    assert holder.outage_ms >= before[2] + 20


def test_after_a_wipe_newcomers_wait_as_long_as_ever_and_have_no_outage_lane_for_a_day(pool: Place) -> None:
    gone = pool.holder().claim()
    began = pool.now_ms()
    pool.wipe()
    answer = pool.holder().ask_claim()
    assert isinstance(answer, Settling)
    assert answer.wait_ms <= FLOOR_MS
    pool.elapse(answer.wait_ms + SLACK_MS)
    newcomer = pool.holder().claim()
    assert newcomer.worker == gone.worker
    assert max(newcomer.lanes_ms[:-1]) <= pool.now_ms()
    assert opens(newcomer) >= max(gone.outage_ms, began + OUTAGE_FLOOR_MS)


def test_a_holder_without_an_outage_lane_gets_it_from_the_floor_after_a_loss(pool: Place) -> None:
    _, heir = lost_to_another(pool)
    heir.outage_ms = 0
    began = pool.now_ms()
    pool.wipe()
    assert heir.ask_renew().adopted
    assert opens(heir) >= began + OUTAGE_FLOOR_MS


def test_adoption_looks_at_the_end_of_the_ordinary_reservation_only(pool: Place) -> None:
    holder = pool.holder().claim()
    pool.wipe()
    pool.elapse(TTL_MS - LEAD_MS - SKEW_MS + 5)
    answer = holder.ask_renew()
    assert isinstance(answer, Lost)
    assert answer.reason == LossReason.TOO_OLD
    assert holder.outage_ms > pool.now_ms() + DAY_MS // 2


def test_an_outage_floor_of_a_time_when_the_redis_clock_was_ahead_is_replaced(stepped: Place) -> None:
    assert stepped.step is not None
    true_ms = stepped.now_ms()
    stepped.wipe()
    stepped.step(DAY_MS)
    assert isinstance(Holder(stepped.store, lambda: true_ms).ask_claim(), Settling)
    stepped.step(-DAY_MS)
    stepped.holder().ask_claim()
    stepped.elapse(FLOOR_MS + SLACK_MS)
    assert opens(stepped.holder().claim()) <= true_ms + OUTAGE_FLOOR_MS


@pytest.mark.parametrize("kind", ["fakeredis", "redis"])
def test_where_losses_go_unnoticed_the_outage_lane_opens_a_day_after_the_claim(
    request: pytest.FixtureRequest, kind: str
) -> None:
    request.param = kind
    for forgetful in open_place(request, replace(WITH_LANE, durability="none")):
        began = forgetful.now_ms()
        holder = forgetful.holder().claim()
        assert opens(holder) >= began + OUTAGE_FLOOR_MS
        assert not is_reserved(holder)
        for _ in range(2):
            forgetful.elapse(LEAD_MS + SKEW_MS)
            assert isinstance(holder.ask_renew(), Renewed)
        assert is_reserved(holder)
        assert opens(holder) >= began + OUTAGE_FLOOR_MS


# --- a Redis clock that was ahead, simulated ---------------------------------------------------------


class Ahead(Stage):
    """A pool whose Redis clock, like those of its hosts, is a minute ahead until right() is called."""

    def __init__(self) -> None:
        super().__init__(outage_ms=DAY_MS)
        self.master.offset_us = 60_000_000
        self.person().create(self.server_ms())
        self.open_outage_lanes(self.master)

    def server_ms(self) -> int:
        return self.master.now_us // 1000

    def person(self, config: PoolConfig | None = None) -> AtTheServer:
        return AtTheServer(self, self.master, config or self.config)

    def right(self) -> None:
        self.master.offset_us = 0

    def stored_ms(self, name: str) -> int:
        return int(self.master.data[pool_keys(self.config.name)[0]][name])


def test_the_floors_of_a_deleted_pool_with_many_records_are_above_all_that_was_reserved() -> None:
    ahead = Ahead()
    gone = Holder(ahead.person(), ahead.server_ms).claim()
    ahead.right()
    # as if there were more records than are read
    ahead.network.edit = lambda _, source: source.replace("2 * 1000 + 40", "0")
    assert isinstance(ahead.person().delete(ahead.server_ms()), Deleted)
    assert ahead.stored_ms("floor") >= gone.until_ms
    assert ahead.stored_ms("outage_floor") >= gone.outage_ms


def test_a_floor_that_keeps_the_lanes_of_refused_processes_stays_when_the_redis_clock_is_set_back() -> None:
    ahead = Ahead()
    refused = Holder(ahead.person(), ahead.server_ms).claim()
    ahead.master.wipe()
    shorter = ahead.person(replace(ahead.config, outage_reserve_ms=3_600_000))
    newcomer = Holder(shorter, ahead.server_ms)
    newcomer.ask_claim()
    with pytest.raises(LayoutMismatch) as error:
        refused.ask_renew()
    assert error.value.keeps_lanes
    ahead.right()
    newcomer.ask_claim()
    assert ahead.stored_ms("outage_floor") >= refused.outage_ms


# --- deletions and changes, in Redis ----------------------------------------------------------------


LONG = PoolConfig(name="lanes", layout=THREE, ttl_ms=60_000, outage_reserve_ms=DAY_MS)
WIDER = Layout(timestamp_bits=41, backup_bits=2, worker_bits=3, sequence_bits=9)


@pytest.fixture
def store(server: RedisServer) -> Iterator[PoolAdministration]:
    store = PoolAdministration(server.url, replace(LONG, name=f"lanes{fresh_hex()[-6:]}"))
    assert isinstance(store.create(wall_ms()), Created)
    open_outage_lanes(store)
    yield store
    store.close()


def test_a_deleted_pool_leaves_both_floors(server: RedisServer, store: PoolAdministration) -> None:
    gone = Holder(store, wall_ms).claim()
    assert isinstance(store.delete(wall_ms()), Deleted)
    assert isinstance(store.create(wall_ms()), Created)
    reply = Holder(store, wall_ms).ask_claim()
    assert isinstance(reply, Settling)
    assert gone.until_ms <= reply.floor_ms <= gone.until_ms + 1000
    assert int(str(server.client().hget(pool_keys(store.config.name)[0], "outage_floor"))) >= gone.outage_ms


def test_a_deleted_pool_of_released_workers_leaves_no_floor(store: PoolAdministration) -> None:
    gone = Holder(store, wall_ms).claim()
    used = wall_ms()
    assert gone.release(used, 0, 0, 0)
    assert isinstance(store.delete(wall_ms()), Deleted)
    assert isinstance(store.create(wall_ms()), Created)
    assert opens(Holder(store, wall_ms).claim()) == 0


@pytest.mark.parametrize(
    "settings", [{"outage_reserve_ms": 0}, {"layout": WIDER}], ids=["without a lane", "another layout"]
)
def test_a_pool_whose_lanes_are_others_starts_after_the_outage_lanes_of_a_deleted_one(
    server: RedisServer, store: PoolAdministration, settings: dict[str, Any]
) -> None:
    gone = Holder(store, wall_ms).claim()
    assert isinstance(store.delete(wall_ms()), Deleted)
    other = PoolAdministration(server.url, replace(store.config, **settings))
    assert isinstance(other.create(wall_ms()), Created)
    reply = Holder(other, wall_ms).ask_claim()
    assert isinstance(reply, Settling)
    assert reply.floor_ms >= gone.outage_ms
    other.close()


def test_outage_lanes_in_the_place_of_ordinary_ones_of_a_deleted_pool_open_after_those(server: RedisServer) -> None:
    before = PoolAdministration(server.url, replace(WITH_LANE, name=fresh_hex(), outage_reserve_ms=0))
    assert isinstance(before.create(wall_ms()), Created)
    gone = Holder(before, wall_ms).claim()
    assert isinstance(before.delete(wall_ms()), Deleted)
    other = PoolAdministration(server.url, replace(before.config, outage_reserve_ms=DAY_MS))
    assert isinstance(other.create(wall_ms()), Created)
    assert int(str(server.client().hget(pool_keys(other.config.name)[0], "outage_floor"))) >= gone.until_ms
    before.close()
    other.close()


def test_a_change_of_the_layout_waits_for_all_outage_lanes(store: PoolAdministration) -> None:
    holder = Holder(store, wall_ms).claim()
    early = store.change_layout(WIDER, wall_ms() + 10_000, wall_ms())
    assert isinstance(early, Early)
    assert early.earliest_ms + LONG.floor_ms >= holder.outage_ms
    planned = store.change_layout(WIDER, early.earliest_ms + 5, wall_ms())
    assert isinstance(planned, Changing)
    assert planned.new_floor_ms >= holder.outage_ms


def test_after_a_loss_a_change_of_the_layout_waits_for_the_floor(
    server: RedisServer, store: PoolAdministration
) -> None:
    began = wall_ms()
    server.client().hset(pool_keys(store.config.name)[0], "run_id", "another")
    early = store.change_layout(WIDER, wall_ms() + 10_000, wall_ms())
    assert isinstance(early, Early)
    assert early.earliest_ms + LONG.floor_ms >= began + DAY_MS


def test_no_outage_lane_is_reserved_beyond_a_planned_change(server: RedisServer, store: PoolAdministration) -> None:
    holder = Holder(store, wall_ms).claim()
    planned = store.change_layout(WIDER, wall_ms() + DAY_MS + 1000, wall_ms())
    assert isinstance(planned, Changing)
    # as if a day had passed
    assert isinstance(holder.ask_renew(ahead_ms=2_000), Renewed)
    newcomer = Holder(store, wall_ms).claim(ahead_ms=2_000)
    assert max(holder.outage_ms, newcomer.outage_ms) <= planned.new_floor_ms


def test_a_loss_moves_a_planned_change_behind_the_outage_lanes_that_may_be_forgotten(
    server: RedisServer, store: PoolAdministration
) -> None:
    planned = store.change_layout(WIDER, wall_ms() + 1_000, wall_ms())
    assert isinstance(planned, Changing)
    server.client().hset(pool_keys(store.config.name)[0], "run_id", "another")
    before = wall_ms()
    Holder(store, wall_ms).ask_claim()
    really_wait(1_100)
    # still the layout of the pool
    Holder(store, wall_ms).ask_claim()
    with pytest.raises(LayoutMismatch) as refused:
        Holder(PoolAdministration(server.url, store.config.with_layout(WIDER)), wall_ms).ask_claim()
    changes_ms = int(refused.value.stored.rpartition("changes_at=")[2])
    assert changes_ms >= before + DAY_MS - LONG.ttl_ms
    assert WorkerPool(server.url, store.config.name).info().changes_ms == changes_ms


def test_a_change_of_the_layout_is_forced(store: PoolAdministration) -> None:
    Holder(store, wall_ms).claim()
    planned = store.change_layout(WIDER, wall_ms() + 10_000, wall_ms(), force=True)
    assert isinstance(planned, Changing)


def test_a_token_in_two_records_keeps_the_newer_one_findable(server: RedisServer, store: PoolAdministration) -> None:
    """After a loss, a repeated claim got another worker id; the older one is claimed by somebody else later."""
    first = Holder(store, wall_ms).claim()
    key, client = pool_keys(store.config.name)[0], server.client()
    client.hset(key, mapping={"run_id": "another", "floor": 0, "floor_at": 0})
    Holder(store, wall_ms).ask_claim()
    client.hset(key, mapping={"floor": 0})
    again = Holder(store, wall_ms, token=first.token).claim()
    assert again.worker != first.worker
    ended_ms = wall_ms() - 10
    change_record(
        client, store.config.name, first.worker, until_ms=ended_ms, lease_end_ms=ended_ms, outage_ms=0, lowered_ms=()
    )
    assert Holder(store, wall_ms).claim().worker == first.worker
    once_more = Holder(store, wall_ms, token=first.token).claim()
    assert once_more.worker == again.worker


# --- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"layout": Layout(backup_bits=0), "outage_reserve_ms": DAY_MS}, "has no backup bits"),
        ({"outage_reserve_ms": TTL_MS}, "longer than the ttl"),
        ({"outage_reserve_ms": 32 * DAY_MS}, "out of range"),
        ({"outage_reserve_ms": -2}, "out of range"),
    ],
)
def test_an_outage_reserve_that_cannot_work_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        replace(CONFIG, **settings)


def test_one_backup_bit_is_enough_on_request(request: pytest.FixtureRequest) -> None:
    request.param = "memory"
    for place in open_place(request, replace(CONFIG, outage_reserve_ms=DAY_MS)):
        holder = place.created().holder().ask_claim()
        assert isinstance(holder, Granted)
        assert holder.lanes_ms == (0, 0)
        assert holder.outage_until_ms > holder.until_ms


def test_a_ttl_of_a_day_needs_no_outage_lane() -> None:
    assert PoolConfig(name="lanes", ttl_ms=DAY_MS - 1).outage_reserve_ms == DAY_MS
    assert PoolConfig(name="lanes", ttl_ms=DAY_MS).outage_reserve_ms == 0
