"""The contract of every store: on the Redis of the simulation, on a real redis-server, and in memory."""

import threading
from dataclasses import replace

import pytest

from snowredis.errors import StoreUnavailable
from snowredis.snowflake.protocol import messages
from snowredis.snowflake.protocol.memory_store import MemoryStore
from tests.snowflake.protocol.conftest import CONFIG, TTL_MS, Place
from tests.support.holder import Holder, create, fresh_hex

LEAD_MS = SKEW_MS = TTL_MS // 12
FLOOR_MS = TTL_MS + LEAD_MS + SKEW_MS
# clocks are read before and after a call
SLACK_MS = 2_000


def test_every_claim_gets_a_worker_id_of_its_own_until_the_pool_is_full(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    assert [holder.worker for holder in holders] == [0, 1, 2, 3]
    answer = pool.holder().ask_claim()
    assert isinstance(answer, messages.PoolFull)
    assert 0 < answer.wait_ms <= TTL_MS


def test_nothing_begins_before_the_moment_at_which_a_person_created_the_pool(place: Place) -> None:
    created = create(place.store, place.now_ms())
    assert created.redis_ms == created.floor_ms
    assert place.holder().claim(now=True).lanes_ms == (created.floor_ms, created.floor_ms)
    behind = place.holder().ask_claim(ahead_ms=-3_600_000, now=True)
    assert isinstance(behind, messages.Behind)
    assert behind.wait_ms > 3_600_000 - 60_000


def test_a_claim_that_was_renewed_already_is_not_answered_again(pool: Place) -> None:
    first = pool.holder().claim()
    first.ask_renew()
    assert Holder(pool.store, pool.now_ms, token=first.token).claim().worker != first.worker
    assert isinstance(first.ask_renew(), messages.Renewed)


def test_a_repeated_renewal_answers_as_before(pool: Place) -> None:
    holder = pool.holder().claim()
    copied = replace(holder, terms=holder.terms._replace(renewal_id="ab"))
    pending = fresh_hex()
    assert isinstance(holder.ask_renew(pending), messages.Renewed)
    assert isinstance(copied.ask_renew(pending), messages.Renewed)
    assert isinstance(holder.ask_renew(), messages.Renewed)


def test_an_expired_lease_goes_to_the_next_claim_above_its_mark_and_is_never_renewed_then(pool: Place) -> None:
    dead = [pool.holder().claim() for _ in range(4)]
    pool.elapse(TTL_MS + SLACK_MS)
    heir = pool.holder().claim()
    assert heir.worker == 0
    assert min(heir.lanes_ms) >= dead[0].until_ms
    assert dead[0].lost().reason == messages.LossReason.REASSIGNED


def test_an_expired_lease_that_nobody_took_goes_on(pool: Place) -> None:
    holder = pool.holder().claim()
    pool.elapse(TTL_MS + SLACK_MS)
    assert isinstance(holder.ask_renew(), messages.Renewed)
    assert holder.until_ms > pool.now_ms()


def test_nothing_goes_back_by_a_release_that_does_not_know_the_newest_renewal(pool: Place) -> None:
    """The reply to the last renewal was lost: a copy of this process may have it, and have opened any lane."""
    holders = [pool.holder().claim() for _ in range(4)]
    holder = holders[1]
    before, pending = holder.terms.renewal_id, fresh_hex()
    holder.ask_renew(pending)
    terms, stats = holder.terms._replace(renewal_id=before), messages.WorkerStats(ids_made=7)
    request = messages.ReleaseRequest(holder.seen, pool.now_ms(), holder.token, terms, pending, "00", stats)
    assert isinstance(pool.store.ask(request), messages.Released)
    heir = pool.holder().claim()
    assert heir.worker == 1
    assert heir.lanes_ms == (holder.until_ms, holder.until_ms)


def test_only_the_holder_can_release(pool: Place) -> None:
    holder = pool.holder().claim()
    holder.ask_renew()
    assert not replace(holder, token=fresh_hex()).release()
    assert not holder.release(renewal_id=fresh_hex())
    assert isinstance(holder.ask_renew(), messages.Renewed)
    assert holder.release()
    assert not holder.release()
    assert isinstance(holder.ask_renew(), messages.Lost)


def test_the_worker_id_that_was_free_the_longest_is_taken_first(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    for index in (1, 0):
        holders[index].release()
        pool.elapse(3)
    assert [pool.holder().claim().worker for _ in range(2)] == [1, 0]


def test_a_worker_id_with_all_its_lanes_comes_before_one_with_a_backup_namespace_only(pool: Place) -> None:
    released = pool.holder().claim()
    assert released.release()
    # three were never used
    assert [pool.holder().claim(now=True).worker for _ in range(4)] == [1, 2, 3, 0]


def test_a_worker_id_with_a_backup_namespace_comes_before_one_that_has_to_be_waited_for(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    assert holders[0].release("11")
    pool.elapse(3)
    assert holders[1].release("10")
    assert pool.holder().claim().worker == 1
    assert pool.holder().claim().worker == 0


def test_a_caller_with_a_clock_behind_gets_a_lane_that_fits_it(pool: Place) -> None:
    pool.elapse(SLACK_MS)
    holders = [pool.holder().claim() for _ in range(4)]
    assert holders[0].release("11")
    assert holders[1].release("10")
    assert pool.holder().claim(ahead_ms=-SLACK_MS, now=True).worker == 1
    assert isinstance(pool.holder().ask_claim(ahead_ms=-SLACK_MS, now=True), messages.Behind)


def test_a_caller_whose_clock_is_behind_all_lanes_is_told_by_how_much(pool: Place) -> None:
    holders = [pool.holder().claim() for _ in range(4)]
    for holder in holders:
        holder.release("11")
    lowest_ms = min(holder.until_ms for holder in holders)
    before = pool.now_ms()
    answer = pool.holder().ask_claim(ahead_ms=-TTL_MS, now=True)
    assert isinstance(answer, messages.Behind)
    assert lowest_ms - pool.now_ms() <= answer.wait_ms - TTL_MS <= lowest_ms - before
    late = pool.holder().claim()
    assert late.lanes_ms == (lowest_ms, lowest_ms)


def test_a_pool_that_nobody_created_makes_newcomers_wait_for_its_floor(place: Place) -> None:
    began = place.now_ms()
    assert TTL_MS < place.holder().settling().wait_ms <= FLOOR_MS
    place.elapse(FLOOR_MS + SLACK_MS)
    holder = place.holder().claim()
    assert began + FLOOR_MS <= min(holder.lanes_ms)
    assert max(holder.lanes_ms) <= place.now_ms()


HOURS_MS = 8 * 3600 * 1000


def test_after_a_loss_while_clocks_were_ahead_newcomers_wait_a_floor_and_the_worker_goes_on(place: Place) -> None:
    """The machine boots ahead, Redis loses its data meanwhile, and then the clock is corrected."""
    place.elapse(HOURS_MS)
    holder = place.created().holder().claim()
    place.wipe()
    assert isinstance(holder.ask_renew(), messages.Renewed)
    place.elapse(-HOURS_MS)
    assert place.holder().settling().wait_ms <= FLOOR_MS
    until_ms = holder.until_ms
    assert isinstance(holder.ask_renew(), messages.Renewed)
    assert holder.until_ms == until_ms
    place.elapse(TTL_MS // 2)
    assert isinstance(holder.ask_renew(), messages.Renewed)
    place.elapse(FLOOR_MS - TTL_MS // 2)
    newcomer = place.holder().claim(now=True)
    assert newcomer.worker != holder.worker
    assert max(newcomer.lanes_ms) <= place.now_ms()


def test_a_caller_far_ahead_of_the_redis_clock_is_refused_when_it_notices_a_loss(place: Place) -> None:
    place.created()
    place.wipe()
    true_ms = place.now_ms()
    place.elapse(-LEAD_MS - TTL_MS - SLACK_MS)
    for call in (Holder(place.store, lambda: true_ms).ask_claim, lambda: create(place.store, true_ms)):
        with pytest.raises(StoreUnavailable) as refused:
            call()
        assert refused.value.code == "clock"
    # whose clock agrees with that of Redis notices it
    assert isinstance(place.holder().ask_claim(), messages.Settling)


def test_after_a_wipe_living_holders_go_on_and_newcomers_wait(lossy: Place) -> None:
    holders = [lossy.holder().claim() for _ in range(3)]
    lossy.wipe()
    assert isinstance(lossy.holder().ask_claim(), messages.Settling)
    for holder in holders[:2]:
        before = holder.until_ms
        answer = holder.ask_renew()
        assert isinstance(answer, messages.Renewed)
        assert answer.adopted
        assert holder.until_ms >= before
    for _ in range(3):
        lossy.elapse((FLOOR_MS + SLACK_MS) // 3)
        for holder in holders[:2]:
            assert isinstance(holder.ask_renew(), messages.Renewed)
    newcomers = [lossy.holder().claim() for _ in range(2)]
    assert {newcomer.worker for newcomer in newcomers} == {2, 3}
    assert min(newcomers[0].lanes_ms) >= max(holder.until_ms for holder in holders[2:])


def test_after_a_wipe_a_holder_is_refused_when_its_worker_id_was_given_away(lossy: Place) -> None:
    holder = lossy.holder().claim()
    lossy.wipe()
    lossy.holder().ask_claim()
    lossy.elapse(FLOOR_MS + SLACK_MS)
    heir = lossy.holder().claim()
    assert heir.worker == holder.worker
    assert isinstance(holder.ask_renew(), messages.Lost)
    assert min(heir.lanes_ms) >= holder.until_ms


# --- durability="none": losses go unnoticed ---------------------------------------------------------


def test_where_losses_go_unnoticed_a_newcomer_starts_above_all_that_may_exist(forgetful: Place) -> None:
    began = forgetful.now_ms()
    # nobody created the pool; nobody has to be let in first, either
    holder = forgetful.holder().claim()
    assert min(holder.lanes_ms) >= began + FLOOR_MS
    # which it waits for, as the holder of a lease
    while holder.until_ms <= holder.lanes_ms[0]:
        forgetful.elapse(TTL_MS // 6)
        assert isinstance(holder.ask_renew(), messages.Renewed)
    began = forgetful.now_ms()
    assert min(forgetful.holder().claim().lanes_ms) >= began + FLOOR_MS


def test_where_losses_go_unnoticed_nobody_is_taken_up_again(forgetful: Place) -> None:
    holder = forgetful.holder().claim()
    forgetful.wipe()
    assert holder.lost().reason == messages.LossReason.FORGOTTEN


def test_where_losses_go_unnoticed_a_lease_is_renewed_only_while_nobody_can_have_had_it_since(forgetful: Place) -> None:
    holder, punctual = forgetful.holder().claim(), forgetful.holder().claim()
    forgetful.elapse(TTL_MS // 2)
    assert isinstance(punctual.ask_renew(), messages.Renewed)
    forgetful.elapse(TTL_MS // 2 - SKEW_MS)
    assert holder.lost().reason == messages.LossReason.LATE
    assert isinstance(punctual.ask_renew(), messages.Renewed)
    # nor does a claim that is repeated so late
    again = Holder(forgetful.store, forgetful.now_ms, token=holder.token).claim()
    assert again.worker != holder.worker or again.lanes_ms != holder.lanes_ms


# --- a pool in memory ---------------------------------------------------------------------------------


def test_a_forked_child_uses_its_copy_of_the_memory_even_if_another_thread_of_the_parent_did() -> None:
    store = MemoryStore(CONFIG, lambda: 1)
    other = threading.Thread(target=store._lock.acquire)
    other.start()
    other.join()
    store.after_fork()
    assert isinstance(create(store, 1), messages.Exists)
