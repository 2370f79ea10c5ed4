"""The outage lane of a worker id, in every store: what is reserved, kept, given back and granted again."""

from dataclasses import replace
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol.messages import LossReason, Renewed
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.snowflake.protocol.conftest import CONFIG, TTL_MS, Place, open_place
from tests.support.holder import Holder

DAY_MS = 24 * 3600 * 1000
LEAD_MS = SKEW_MS = TTL_MS // 12
FLOOR_MS = TTL_MS + LEAD_MS + SKEW_MS
OUTAGE_FLOOR_MS = DAY_MS + LEAD_MS + SKEW_MS
SLACK_MS = 2_000
THREE = Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10)
WITH_LANE = replace(CONFIG, layout=THREE, outage_reserve_ms=DAY_MS)


@pytest.fixture
def config() -> PoolConfig:
    return WITH_LANE


def opens(holder: Holder) -> int:
    return holder.lanes_ms[-1]


def is_reserved(holder: Holder) -> bool:
    return holder.outage_ms > opens(holder)


# --- claim and renew --------------------------------------------------------------------------------


def test_a_claim_reserves_the_highest_lane_for_a_day_and_the_others_for_a_ttl(pool: Place) -> None:
    before = pool.now_ms()
    holder = pool.holder().claim()
    # all lanes begin where the pool was created
    assert len(set(holder.lanes_ms)) == 1
    assert max(holder.lanes_ms) <= before
    assert before + TTL_MS <= holder.until_ms <= pool.now_ms() + TTL_MS
    assert before + DAY_MS <= holder.outage_ms <= pool.now_ms() + DAY_MS


def test_a_renewal_extends_both_and_never_shortens_one(pool: Place) -> None:
    holder = pool.holder().claim()
    until_ms, outage_ms = holder.until_ms, holder.outage_ms
    pool.elapse(30)
    holder.ask_renew()
    assert until_ms + 30 <= holder.until_ms <= pool.now_ms() + TTL_MS
    assert holder.outage_ms >= outage_ms + 30
    before = holder.until_ms, holder.outage_ms
    holder.ask_renew(ahead_ms=-10_000)
    assert (holder.until_ms, holder.outage_ms) == before


def test_a_clock_that_runs_ahead_is_capped(pool: Place) -> None:
    holder = pool.holder().claim(ahead_ms=10**10)
    for _ in range(2):
        assert holder.until_ms <= pool.now_ms() + LEAD_MS + TTL_MS
        assert holder.outage_ms <= pool.now_ms() + LEAD_MS + DAY_MS
        assert isinstance(holder.ask_renew(ahead_ms=10**10), Renewed)


def test_the_same_claim_again_answers_the_same_lease(pool: Place) -> None:
    first = pool.holder().claim()
    again = Holder(pool.store, pool.now_ms, token=first.token).claim()
    assert (again.worker, again.lanes_ms) == (first.worker, first.lanes_ms)
    # a copy that was made while the claim was under way may have the first reply
    assert again.terms.renewal_id != first.terms.renewal_id
    assert again.until_ms >= first.until_ms
    assert again.outage_ms >= first.outage_ms
    assert pool.holder().claim().worker != first.worker


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


def test_a_worker_id_without_its_outage_lane_comes_before_one_with_a_backup_namespace_only(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    for holder in holders[1:]:
        assert isinstance(holder.ask_renew(), Renewed)
    # first in the order in which they became available, but its first lane is reserved
    assert holders[1].release()
    assert pool.holder().claim().worker == holders[0].worker
    assert pool.holder().claim().worker == holders[1].worker


# --- release ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["1000", "1100", "1011", "0000"])
def test_a_release_gives_back_whole_each_other_lane_that_was_never_opened(pool: Place, opened: str) -> None:
    holder = pool.holder().claim()
    others = [pool.holder().claim() for _ in range(3)]
    assert holder.release(opened)
    heir = pool.holder().claim(now=True)
    assert heir.worker not in [other.worker for other in others]
    ends = (*[holder.until_ms] * 3, holder.outage_ms)
    expected = [end if was == "1" else begin for begin, end, was in zip(holder.lanes_ms, ends, opened, strict=True)]
    assert heir.lanes_ms == (holder.until_ms, *expected[1:])


@pytest.mark.parametrize("unsure", [{"opened": ""}, {"opened": "000"}, {"reclaimed": True}], ids=str)
def test_in_doubt_all_lanes_are_reserved_to_their_ends(pool: Place, unsure: dict[str, Any]) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    assert holders[2].release(**unsure)
    heir = pool.holder().claim()
    assert heir.worker == 2
    assert heir.lanes_ms == (*[holders[2].until_ms] * 3, holders[2].outage_ms)


@pytest.mark.parametrize("other", [["until_ms"], ["outage_until_ms"], ["until_ms", "outage_until_ms"]], ids=str)
def test_a_release_gives_back_no_lane_whose_end_is_not_the_callers(pool: Place, other: list[str]) -> None:
    """The reply to the last renewal was lost: a copy of this process may have it."""
    holders = [pool.holder().claim() for _ in range(4)]
    pool.elapse(1)
    holder = holders[1]
    begins, before = holder.lanes_ms, holder.terms
    holder.set(**{name: getattr(before, name) - 1 for name in other})
    assert holder.release()
    heir = pool.holder().claim()
    assert heir.worker == holder.worker
    ordinary = [before.until_ms] * 2 if "until_ms" in other else begins[1:3]
    outage_ms = before.outage_until_ms if "outage_until_ms" in other else begins[3]
    assert heir.lanes_ms == (before.until_ms, *ordinary, outage_ms)


def test_an_outage_lane_that_the_holder_does_not_have_is_not_given_back(pool: Place) -> None:
    began_ms = pool.now_ms()
    dead = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    # on its clock the others have not claimed yet, however long that took
    heir = pool.holder().claim(ahead_ms=began_ms - SLACK_MS - pool.now_ms())
    assert not is_reserved(heir)
    assert heir.release()
    for other in dead:
        if other.worker != heir.worker:
            other.ask_renew()
    pool.elapse(TTL_MS)
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


def test_a_refused_holder_keeps_its_outage_lane_after_the_release_of_its_heir_too(pool: Place) -> None:
    holder, heir = lost_to_another(pool)
    assert heir.release()
    answer = holder.lost()
    assert (answer.reason, answer.keeps_lane) == (LossReason.REASSIGNED, True)


@pytest.mark.parametrize("claimed", [False, True], ids=["available", "claimed again"])
def test_a_copy_whose_worker_id_was_released_loses_its_outage_lane(pool: Place, claimed: bool) -> None:
    """The lane went back whole, so another process may have it."""
    holders = [pool.holder().claim() for _ in range(4)]
    copy = replace(holders[2])
    assert holders[2].release()
    if claimed:
        assert pool.holder().claim().worker == copy.worker
    answer = copy.lost()
    assert (answer.reason, answer.keeps_lane) == (LossReason.REASSIGNED, False)
    # the next holder begins where the lease that was released ends, so nothing was rolled back
    assert answer.alarm is None


def test_a_copy_whose_claim_was_repeated_after_its_end_raises_no_alarm(pool: Place) -> None:
    """Another lease has the same token then, whose outage lane is not reserved, but begins at the end of the copy's."""
    one = pool.holder().claim()
    copy = replace(one)
    pool.elapse(TTL_MS + SLACK_MS)
    one.options = "g"
    assert one.claim().worker == copy.worker
    assert opens(one) == copy.outage_ms
    one.ask_renew()
    assert not is_reserved(one)
    answer = copy.lost()
    assert (answer.reason, answer.keeps_lane, answer.alarm) == (LossReason.COPIED, False, None)


def test_a_claim_that_arrives_again_after_the_end_of_its_lease_raises_no_alarm(pool: Place) -> None:
    """It is granted by the clock of then, so that the new lease ends before it begins."""
    claimed_ms = pool.now_ms()
    holders = [pool.holder().claim() for _ in range(4)]
    one = holders[0]
    pool.elapse(SLACK_MS)
    for holder in holders:
        holder.ask_renew()
    pool.elapse(TTL_MS + SLACK_MS)
    again = replace(one, options="g").claim(ahead_ms=claimed_ms - pool.now_ms())
    assert again.worker == one.worker
    assert again.until_ms < one.until_ms <= again.lanes_ms[0]
    answer = one.lost()
    assert (answer.reason, answer.alarm) == (LossReason.COPIED, None)


def test_an_earlier_release_of_the_worker_id_takes_no_lane_from_a_later_holder(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    assert holders[2].release()
    later = pool.holder().claim()
    assert later.worker == 2
    pool.elapse(TTL_MS + SLACK_MS)
    for holder in holders:
        if holder.worker != 2:
            holder.ask_renew()
    assert pool.holder().claim().worker == 2
    answer = later.lost()
    assert (answer.reason, answer.keeps_lane) == (LossReason.REASSIGNED, True)


# --- losses -----------------------------------------------------------------------------------------


def test_after_a_wipe_a_living_holder_keeps_and_extends_both(lossy: Place) -> None:
    holder = lossy.holder().claim()
    before = holder.until_ms, opens(holder), holder.outage_ms
    lossy.wipe()
    lossy.elapse(20)
    assert holder.ask_renew().adopted
    assert holder.until_ms >= before[0]
    assert opens(holder) == before[1]
    assert holder.outage_ms >= before[2] + 20


def test_after_a_wipe_newcomers_wait_as_long_as_ever_and_have_no_outage_lane_for_a_day(lossy: Place) -> None:
    gone = lossy.holder().claim()
    began = lossy.now_ms()
    lossy.wipe()
    answer = lossy.holder().settling()
    assert answer.wait_ms <= FLOOR_MS
    lossy.elapse(answer.wait_ms + SLACK_MS)
    newcomer = lossy.holder().claim()
    assert newcomer.worker == gone.worker
    assert max(newcomer.lanes_ms[:-1]) <= lossy.now_ms()
    assert opens(newcomer) >= max(gone.outage_ms, began + OUTAGE_FLOOR_MS)


def test_a_holder_without_an_outage_lane_gets_it_from_the_floor_after_a_loss(lossy: Place) -> None:
    _, heir = lost_to_another(lossy)
    heir.set(outage_until_ms=0)
    began = lossy.now_ms()
    lossy.wipe()
    assert heir.ask_renew().adopted
    assert opens(heir) >= began + OUTAGE_FLOOR_MS


def test_adoption_looks_at_the_end_of_the_ordinary_reservation_only(lossy: Place) -> None:
    holder = lossy.holder().claim()
    lossy.wipe()
    lossy.elapse(TTL_MS - LEAD_MS - SKEW_MS + 5)
    assert holder.lost().reason == LossReason.TOO_OLD
    assert holder.outage_ms > lossy.now_ms() + DAY_MS // 2


@pytest.mark.parametrize("kind", ["model", "redis"])
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


# --- a pool that a person created --------------------------------------------------------------------


def test_a_pool_that_nobody_created_opens_its_outage_lanes_after_their_own_floor(place: Place) -> None:
    began = place.now_ms()
    answer = place.holder().settling()
    place.elapse(answer.wait_ms + 1)
    assert began + OUTAGE_FLOOR_MS <= opens(place.holder().claim()) <= place.now_ms() + OUTAGE_FLOOR_MS


# --- settings ---------------------------------------------------------------------------------------


def test_a_ttl_of_a_day_needs_no_outage_lane() -> None:
    assert PoolConfig(name="lanes", ttl_ms=DAY_MS - 1).outage_reserve_ms == DAY_MS
    assert PoolConfig(name="lanes", ttl_ms=DAY_MS).outage_reserve_ms == 0
