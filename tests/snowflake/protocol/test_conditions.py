"""Conditions of uniqueness that the specification found, and the last ms of decisions: on simulated servers."""

from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.snowflake.protocol.messages import Granted, LossReason, Lost, Renewed, Settling
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from tests.lab.simulation.pool_faults import AtTheServer
from tests.lab.simulation.redis_model import RedisModel
from tests.snowflake.protocol.simulated import SimPool
from tests.support.holder import Holder, create


@pytest.fixture
def place() -> SimPool:
    return SimPool(slack_ms=2_000)


def test_a_release_leaves_the_mark_of_a_lane_that_the_holder_did_not_reach(place: SimPool) -> None:
    """Its clock is behind all that the worker id was used for."""
    holders = [place.holder().claim(), place.holder().claim()]
    place.stage.wait(place.config.ttl_ms + 1)
    behind = place.holder().claim(ahead_ms=-2 * place.config.ttl_ms)
    assert behind.worker == holders[0].worker
    assert min(behind.lanes_ms) == holders[0].until_ms > behind.until_ms
    assert behind.release()
    heirs = [place.holder().claim() for _ in range(2)]
    (heir,) = [each for each in heirs if each.worker == behind.worker]
    assert min(heir.lanes_ms) >= holders[0].until_ms


def test_more_marks_out_of_reach_than_one_claim_looks_at_do_not_hide_the_others() -> None:
    place = SimPool(worker_bits=7)
    place.stage.master.offset_us = 3_600_000_000
    for early in [place.holder().claim() for _ in range(65)]:
        assert early.release("1")
    place.stage.master.offset_us = 0
    granted = 0
    # more than there are unused worker ids
    for _ in range(66):
        place.stage.wait(7_000)
        late = place.holder()
        if isinstance(late.ask_claim(now=True), Granted):
            assert late.claim().release("1")
            granted += 1
    # one claim sees none but those, and the next one looks at others
    assert granted >= 65


def test_a_token_in_two_records_gets_a_third_worker_id_if_the_older_one_is_claimed_by_another() -> None:
    """After a loss, a repeated claim got another worker id. Nothing says any more which one it was; none is shared."""
    place = SimPool(worker_bits=2)
    first = place.holder().claim()
    place.stage.wait(4_000)
    place.restart()
    place.holder().settling()
    # as if the floor had passed
    place.stored["lost_at"] = str(place.now_ms() - place.config.floor_ms)
    again = Holder(place.store, place.now_ms, token=first.token).claim()
    assert again.worker != first.worker
    place.stage.wait(4_000)
    assert place.holder().claim().worker == first.worker
    once_more = Holder(place.store, place.now_ms, token=first.token).claim()
    assert once_more.worker not in (first.worker, again.worker)
    assert isinstance(again.ask_renew(), Renewed)


# --- another pool of the same name at the address -----------------------------------------------------


@pytest.fixture
def elsewhere(place: SimPool) -> AtTheServer:
    """A pool of the same name and settings on another server, whose floor has passed, with a worker."""
    server = RedisModel(place.stage.world, "elsewhere")
    store = AtTheServer(place.stage, server, place.config)
    create(store, place.now_ms())
    place.stage.wait(1)
    Holder(store, place.now_ms).claim()
    return store


def led_to(store: AtTheServer, holder: Holder) -> Holder:
    """Let a holder reach another server from now on, by the same address."""
    holder.store = store
    return holder


@pytest.mark.parametrize("call", ["renewal", "release"])
def test_a_holder_that_reaches_another_pool_raises_an_alarm_and_the_floor(
    place: SimPool, elsewhere: AtTheServer, call: str
) -> None:
    living = led_to(elsewhere, place.holder().claim())
    before = living.seen
    if call == "renewal":
        reply = living.ask_renew()
        assert reply.alarm is not None
        assert reply.alarm.from_ms <= living.until_ms - place.config.ttl_ms
    else:
        assert not living.release()
    assert living.seen.incarnation != before.incarnation
    newcomer = Holder(elsewhere, place.now_ms).settling()
    assert newcomer.wait_ms == place.config.floor_ms
    # said once
    assert newcomer.alarm is None


@pytest.mark.parametrize("outage_ms", [0, 60_000])
def test_a_holder_that_the_floors_cover_raises_no_alarm_at_another_pool(outage_ms: int) -> None:
    """Redis lost everything, and a process that knew nothing of the pool created another one."""
    place = SimPool(slack_ms=2_000, outage_ms=outage_ms)
    living = place.holder().claim()
    assert (living.outage_ms > living.until_ms) == (outage_ms > 0)
    place.stage.master.wipe()
    newcomer = place.holder().settling()
    assert living.until_ms <= newcomer.floor_ms
    reply = living.ask_renew()
    assert isinstance(reply, Renewed)
    assert (reply.adopted, reply.alarm, reply.floor_ms) == (True, None, newcomer.floor_ms)


def test_a_lane_beyond_the_floors_raises_an_alarm_at_another_pool_before_they_have_passed() -> None:
    """It was granted while the clocks were ahead, and the pool there was created after they were set right."""
    place = SimPool(outage_ms=60_000)
    place.stage.master.offset_us = 3_600_000_000
    ahead = place.holder().claim()
    place.stage.master.offset_us = 0
    place.stage.master.wipe()
    assert isinstance(place.holder().ask_claim(), Settling)
    assert ahead.ask_renew().alarm is not None


def test_an_outage_lane_that_goes_on_where_a_person_created_the_pool_anew_raises_an_alarm() -> None:
    """All else that the holder had is over."""
    place = SimPool(outage_ms=60_000)
    living = place.holder().claim()
    place.stage.wait(place.config.ttl_ms + 1)
    place.stage.master.wipe()
    created = create(place.store, place.now_ms())
    assert living.until_ms < created.floor_ms < living.outage_ms
    assert living.lost().alarm is not None


# --- the last ms at which a decision holds; the clock stands still between the steps of a test -----

# lead and slack differ, so that none stands for another
CONFIG = PoolConfig(
    name="p",
    layout=Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10),
    ttl_ms=3_000,
    max_clock_lead_ms=100,
    failover_slack_ms=290,
    outage_reserve_ms=0,
)
MARGIN_MS = 100 + 290
FLOOR_MS = 3_000 + MARGIN_MS


@pytest.fixture
def pool() -> SimPool:
    pool = SimPool(CONFIG)
    pool.stage.wait(10_000)
    return pool


# the later of the two clocks counts: that of Redis may be behind, and set right later
@pytest.mark.parametrize("behind_ms", [0, 1_000])
@pytest.mark.parametrize("left_ms", [MARGIN_MS, MARGIN_MS + 1])
def test_another_server_adopts_a_lease_whose_reservation_it_could_not_have_given_away(
    pool: SimPool, left_ms: int, behind_ms: int
) -> None:
    holder = pool.holder().claim()
    pool.pass_ms(holder.until_ms - pool.now_ms() - left_ms)
    pool.restart()
    pool.pass_ms(-behind_ms)
    reply = holder.ask_renew(ahead_ms=behind_ms)
    pool.pass_ms(behind_ms)
    assert reply.floor_ms == pool.now_ms() + FLOOR_MS
    if left_ms > MARGIN_MS:
        assert isinstance(reply, Renewed)
        assert reply.adopted
    else:
        assert isinstance(reply, Lost)
        assert reply.reason is LossReason.TOO_OLD
    assert pool.holder().settling().wait_ms == FLOOR_MS
    pool.pass_ms(FLOOR_MS - 1)
    assert isinstance(pool.holder().ask_claim(), Settling)
    pool.pass_ms(1)
    assert isinstance(pool.holder().ask_claim(), Granted)


@pytest.mark.parametrize("back_ms", [3_100, 3_101])
def test_a_loss_that_was_noticed_further_ahead_than_lead_and_ttl_counts_as_noticed_now(
    pool: SimPool, back_ms: int
) -> None:
    pool.pass_ms(3_600_000)
    pool.restart()
    high_ms = pool.now_ms() + FLOOR_MS
    assert pool.holder().ask_claim().floor_ms == high_ms
    pool.pass_ms(-back_ms)
    floor_ms = pool.holder().ask_claim().floor_ms
    assert floor_ms == (high_ms if back_ms == 3_100 else pool.now_ms() + FLOOR_MS)


# the others are for people only
@pytest.mark.parametrize("field", ["until_ms", "lease_end_ms", "lanes_ms", "outage_ms"])
def test_a_record_with_a_time_that_tostring_would_not_write_whole_is_broken(pool: SimPool, field: str) -> None:
    one = pool.holder().claim()
    stored = pool.stored
    record = LeaseRecord.parse(stored["w:0"])
    assert record is not None
    late: Any = {field: (10**14,) if field == "lanes_ms" else 10**14}
    stored["w:0"] = record._replace(**late).pack()
    with pytest.raises(StoreUnavailable):
        one.ask_renew()


def test_an_index_that_is_rebuilt_in_many_steps_counts_the_records_that_are_there(pool: SimPool) -> None:
    """A person removed a record; the index is lost again between two steps, in which others are served."""
    living, *_ = [pool.holder().claim() for _ in range(3)]
    server = pool.stage.master
    del pool.stored["w:1"], server.data[pool_keys("p")[1]]
    server.index_step = 1
    asked = 0
    while not isinstance(pool.holder().ask_claim(), Granted):
        asked += 1
        assert asked < 100
        assert isinstance(living.ask_renew(), Renewed)
        if asked == 2:
            del server.data[pool_keys("p")[1]]
    assert asked > 4
    # two were left, and one is new
    assert pool.stored["records"] == "3"
