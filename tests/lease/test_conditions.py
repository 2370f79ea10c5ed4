"""Conditions of uniqueness that the specification of the protocol found, on the shipped scripts and a simulated server.

docs/explanation/uniqueness.md, "What the specification asked", lists them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from snowredis.snowflake.replies import Granted, LossReason, Lost, Renewed, Seen, Settling
from tests.simulation.pool_faults import AtTheServer
from tests.simulation.stage import Stage
from tests.support.holder import Holder

SLACK_MS = 2_000


class Place:
    """A pool on a simulated server, whose time and identity a test can change."""

    def __init__(self) -> None:
        self.stage = Stage(slack_ms=SLACK_MS)
        self.config = self.stage.config
        self.store = AtTheServer(self.stage, self.stage.master, self.config)
        self.store.create(self.now_ms())

    def now_ms(self) -> int:
        return self.stage.master.now_us // 1000

    def holder(self) -> Holder:
        return Holder(self.store, self.now_ms)

    def restart(self) -> None:
        """Let the server become another one, with all data."""
        self.stage.master.restart(self.stage.master.copy_data())

    @property
    def horizon_ms(self) -> int:
        config = self.config
        return config.redis_skew_ms + config.max_clock_lead_ms + config.failover_slack_ms


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_claim_repeated_after_a_loss_is_not_answered_from_the_record_before_it(place: Place) -> None:
    """Its answer would say that the lease belongs to the present incarnation, and its renewal were no adoption."""
    holder = place.holder().claim()
    place.restart()
    assert isinstance(holder.ask_claim(), Settling)
    place.stage.wait(place.config.floor_ms + 1)
    again = holder.ask_claim()
    assert isinstance(again, Granted)
    # above all that the first answer allowed
    assert min(again.lanes_ms) >= holder.until_ms


def test_an_adoption_asks_for_the_time_that_a_deposed_master_goes_on_answering_too(place: Place) -> None:
    holders = [place.holder().claim(), place.holder().claim()]
    left_ms = holders[0].until_ms - place.now_ms()
    place.stage.wait(left_ms - place.horizon_ms - 1)
    place.restart()
    assert isinstance(holders[0].ask_renew(), Renewed)
    place.stage.wait(1)
    refused = holders[1].ask_renew()
    assert isinstance(refused, Lost)
    assert refused.reason == LossReason.TOO_OLD


def test_each_claim_that_is_granted_starts_a_chain_with_another_name(place: Place) -> None:
    holder = place.holder()
    names = []
    for _ in range(3):
        holder.claim()
        names.append(holder.renewal_id)
        # the same token, and the same clock
        place.stage.wait(1)
    place.stage.wait(place.config.ttl_ms + 1)
    names.append(holder.claim().renewal_id)
    assert len(set(names)) == 4


def test_copies_extend_each_others_reservation_by_repeating_the_renewal_that_was_under_way(
    place: Place,
) -> None:
    """A documented limit: the chain cannot tell them apart before one of them begins another renewal."""
    one = place.holder().claim()
    two = replace(one)
    first = one.ask_renew("aa" * 16)
    place.stage.wait(1_000)
    second = two.ask_renew("aa" * 16)
    assert isinstance(first, Renewed)
    assert isinstance(second, Renewed)
    assert second.until_ms == first.until_ms + 1_000
    assert isinstance(two.ask_renew(), Renewed)
    refused = one.ask_renew()
    assert isinstance(refused, Lost)
    assert refused.reason == LossReason.COPIED


def test_a_copy_is_refused_at_its_next_renewal_when_its_original_released(place: Place) -> None:
    """A documented limit: until then, the next holder may use ticks that the copy still has."""
    one = place.holder().claim()
    place.holder().claim()
    two = replace(one)
    used_ms = place.now_ms()
    assert one.release(used_ms)
    heir = place.holder().claim()
    assert (heir.worker, heir.lanes_ms) == (one.worker, (used_ms,))
    assert two.until_ms > used_ms
    refused = two.ask_renew()
    assert isinstance(refused, Lost)
    assert refused.reason == LossReason.REASSIGNED


@pytest.mark.parametrize("behind_ms", [0, 500])
def test_who_was_granted_a_worker_id_later_is_told_without_a_clock(place: Place, behind_ms: int) -> None:
    """The marks tell; the clock of the server may be behind when it grants the later claim."""
    one = place.holder().claim()
    copy = replace(one)
    one.release(place.now_ms() + 10)
    place.stage.wait(behind_ms + 20)
    place.stage.master.offset_us = -behind_ms * 1000
    heir = place.holder().claim()
    assert heir.worker == one.worker
    place.restart()
    refused = copy.ask_renew()
    assert isinstance(refused, Lost)
    assert refused.reason == LossReason.REASSIGNED
    assert isinstance(heir.ask_renew(), Renewed)


def test_a_release_leaves_the_mark_of_a_lane_that_was_not_used_where_it_was(place: Place) -> None:
    one = place.holder().claim()
    assert one.release(0)
    heir = place.holder().claim()
    assert heir.worker == one.worker
    assert heir.lanes_ms == one.lanes_ms


def test_a_late_renewal_of_a_lease_that_was_released_unused_is_no_rollback(place: Place) -> None:
    """The next holder has the same lanes, as if the pool had forgotten the first lease (R10)."""
    one, other = place.holder().claim(), place.holder().claim()
    late, later = replace(one), replace(other)
    heirs = []
    for each in (one, other):
        each.release(0)
        heirs.append(place.holder().claim())
    assert [heir.lanes_ms for heir in heirs] == [late.lanes_ms, later.lanes_ms]
    for each in (late, later):
        refused = each.ask_renew()
        assert isinstance(refused, Lost)
        assert (refused.reason, refused.alarm) == (LossReason.REASSIGNED, None)
    heirs[0].release(0)
    assert place.holder().claim().worker == heirs[0].worker


def test_a_lease_that_others_released_unused_shows_a_rollback_still(place: Place) -> None:
    before = place.stage.master.copy_data()
    forgotten = place.holder().claim()
    place.stage.master.data = before
    other = place.holder().claim()
    other.release(0)
    heir = place.holder().claim()
    assert (heir.worker, heir.lanes_ms) == (forgotten.worker, forgotten.lanes_ms)
    # as many scripts as were forgotten do not tell by themselves
    assert heir.seen.version > forgotten.seen.version
    assert forgotten.ask_renew().alarm is not None


def test_a_release_leaves_the_mark_of_a_lane_that_the_holder_did_not_reach(place: Place) -> None:
    """Its clock is behind all that the worker id was used for."""
    holders = [place.holder().claim(), place.holder().claim()]
    place.stage.wait(place.config.ttl_ms + 1)
    behind = place.holder().claim(ahead_ms=-2 * place.config.ttl_ms)
    assert behind.worker == holders[0].worker
    assert min(behind.lanes_ms) == holders[0].until_ms > behind.until_ms
    assert behind.release(0)
    heir = place.holder().claim()
    assert heir.worker == holders[1].worker
    place.stage.wait(place.config.ttl_ms + 1)
    assert min(place.holder().claim().lanes_ms) >= holders[0].until_ms


def test_marks_out_of_reach_do_not_hide_worker_ids_that_fit() -> None:
    """For a moment, the clocks of Redis and of some hosts were ahead; these processes ended then."""
    stage = Stage(worker_bits=4)
    store = AtTheServer(stage, stage.master, stage.config)

    def now_ms() -> int:
        return stage.master.now_us // 1000

    store.create(now_ms())
    holders = [Holder(store, now_ms).claim() for _ in range(16)]
    stage.master.offset_us = 3_600_000_000
    for holder in holders[:12]:
        assert isinstance(holder.ask_renew(), Renewed)
    stage.master.offset_us = 0
    for _ in range(3):
        for holder in holders[12:]:
            assert isinstance(holder.ask_renew(), Renewed)
        stage.wait(stage.config.ttl_ms - 1_000)
    assert all(holder.release(now_ms()) for holder in holders[12:])
    stage.wait(1_000)
    fitting = Holder(store, now_ms).ask_claim()
    assert isinstance(fitting, Granted)
    assert fitting.worker >= 12


def test_a_renewal_never_moves_the_end_of_a_lease_back(place: Place) -> None:
    """If it moved back with a server's clock, the worker id would be leased again too early."""
    one, other = place.holder().claim(), place.holder().claim()
    lease_end_ms = place.now_ms() + place.config.ttl_ms
    place.stage.master.offset_us = -place.config.redis_skew_ms * 1000
    assert isinstance(one.ask_renew(), Renewed)
    place.stage.wait(lease_end_ms - 1 - place.now_ms())
    assert isinstance(other.ask_renew(), Renewed)
    assert not isinstance(place.holder().ask_claim(), Granted)
    assert one.seen != Seen()
