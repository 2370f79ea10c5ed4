"""Conditions of uniqueness that the specification found, on the shipped scripts and simulated servers."""

import pytest

from snowredis.snowflake.protocol.messages import Granted, Renewed, Settling
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
