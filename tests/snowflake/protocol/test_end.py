"""The end of a pool, and what starts there, on the shipped scripts and a simulated server.

tests/snowflake/test_restored_pools.py has servers that are killed, and replicas.
"""

import calendar
import contextlib
import itertools
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.snowflake.protocol.administration import Ends
from snowredis.snowflake.protocol.messages import Created, Exists, Granted, LossReason, Renewed, Reply
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.pool_faults import AtTheServer
from tests.lab.simulation.stage import Stage
from tests.snowflake.protocol.simulated import SimPool
from tests.support.holder import Holder, create

_Reply = TypeVar("_Reply", bound=Reply)
OUTAGE_MS = 60_000


class WithoutReplica(AtTheServer):
    """Store of a person while a replica does not reply."""

    def _lasting(self, change: Callable[[], _Reply], *, strict: bool = False) -> _Reply:
        reply = super()._lasting(change, strict=strict)
        if strict:
            raise StoreUnavailable(self.where, "0 of 1 replicas have it")
        return reply


class Place(SimPool):
    def end(self) -> Ends:
        reply = self.store.delete(self.now_ms())
        assert isinstance(reply, Ends)
        return reply

    def end_unconfirmed(self) -> None:
        """Set an end that does not count."""
        with pytest.raises(StoreUnavailable, match="repeat the command before then"):
            WithoutReplica(self.stage, self.stage.master, self.config).delete(self.now_ms())

    def wait_until(self, ms: int) -> None:
        self.stage.wait(max(0, ms - self.now_ms()))

    @property
    def wider(self) -> PoolConfig:
        """Return the same pool with another layout."""
        layout = self.config.layout
        return replace(self.config, layout=replace(layout, worker_bits=layout.worker_bits + 1))


@pytest.fixture
def place() -> Place:
    return Place(outage_ms=OUTAGE_MS)


# --- when ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outage_ms", [0, OUTAGE_MS])
def test_the_earliest_end_is_that_of_all_reservations(outage_ms: int) -> None:
    place = Place(outage_ms=outage_ms)
    holders = [place.holder().claim() for _ in range(2)]
    place.stage.wait(1000)
    assert isinstance(holders[0].ask_renew(), Renewed)
    ends = place.end()
    assert ends.end_ms == max(max(holder.until_ms, holder.outage_ms) for holder in holders)
    assert not ends.over


def test_a_pool_in_which_nothing_was_granted_is_over_at_once(place: Place) -> None:
    ends = place.end()
    assert (ends.over, ends.end_ms) == (True, place.now_ms())
    assert place.holder().claim(now=True).lanes_ms == (ends.end_ms, ends.end_ms)


def test_a_pool_whose_workers_released_is_over_at_once_and_the_next_one_starts_at_its_end(place: Place) -> None:
    holder = place.holder().claim()
    assert holder.release("10")
    ends = place.end()
    assert (ends.over, ends.end_ms) == (True, holder.until_ms)
    other = replace(place.config, ttl_ms=5_000)
    assert isinstance(create(place.person(other), place.now_ms()), Created)
    assert place.holder(other).settling().wait_ms == holder.until_ms - place.now_ms()
    place.wait_until(ends.end_ms)
    assert place.holder(other).claim(now=True).lanes_ms == (ends.end_ms, ends.end_ms)


def test_an_outage_lane_that_was_opened_is_waited_for_after_its_release(place: Place) -> None:
    holder = place.holder().claim()
    assert holder.release("11")
    ends = place.end()
    assert (ends.over, ends.end_ms) == (False, holder.outage_ms)


@pytest.mark.parametrize("outage_ms", [0, OUTAGE_MS])
def test_after_a_loss_the_end_is_not_before_the_floors(outage_ms: int) -> None:
    place = Place(outage_ms=outage_ms)
    place.restart()
    config = place.config
    horizon_ms = config.floor_ms - config.ttl_ms + max(config.ttl_ms, outage_ms)
    assert place.end().end_ms == place.now_ms() + horizon_ms


def test_the_end_of_a_pool_with_many_records_is_behind_all_that_was_ever_granted(place: Place) -> None:
    holder = place.holder().claim()
    assert holder.release("10")
    # as if there were more records than are read
    place.stage.network.edit = lambda _, source: source.replace("SCANNED = 10000", "SCANNED = 0")
    ends = place.end()
    assert not ends.over
    # the highest end of all is written with some time in advance
    assert holder.outage_ms <= ends.end_ms <= holder.outage_ms + place.config.ttl_ms


def test_a_record_that_cannot_be_read_counts_with_all_that_was_ever_granted(place: Place) -> None:
    holder = place.holder().claim()
    place.stored[f"w:{holder.worker}"] = "what is this?"
    ends = place.end()
    assert not ends.over
    assert ends.end_ms >= holder.outage_ms


def test_where_losses_go_unnoticed_the_end_is_behind_all_that_may_have_been_forgotten() -> None:
    place = Place(outage_ms=OUTAGE_MS, durability="none")
    config = place.config
    ends = place.end()
    assert not ends.over
    assert ends.end_ms == place.now_ms() + config.floor_ms - config.ttl_ms + OUTAGE_MS


def test_where_losses_go_unnoticed_no_end_follows_from_the_clock_of_a_host_that_is_far_ahead() -> None:
    place = Place(outage_ms=OUTAGE_MS, durability="none")
    config = place.config
    most_ms = config.ttl_ms + config.max_clock_lead_ms
    with pytest.raises(StoreUnavailable, match="Correct the clock"):
        place.store.delete(place.now_ms() + most_ms + 1)
    assert place.store.delete(place.now_ms() + most_ms).end_ms < place.now_ms() + most_ms + 2 * OUTAGE_MS


# --- confirmed ----------------------------------------------------------------------------------------


def test_an_end_that_was_never_confirmed_stops_the_pool_until_it_is(place: Place) -> None:
    """A copy that does not have the end would grant ids beyond it."""
    holder = place.holder().claim()
    place.end_unconfirmed()
    place.stage.wait(1000)
    # it is cut at once
    assert isinstance(holder.ask_renew(), Renewed)
    place.wait_until(holder.outage_ms - 1)
    assert isinstance(place.holder().ask_claim(), Granted)
    place.stage.wait(1)
    before = dict(place.stored)
    calls: list[Callable[[], object]] = [
        place.holder().ask_claim,
        holder.ask_renew,
        holder.release,
        lambda: create(place.store, place.now_ms()),
    ]
    for call in calls:
        with pytest.raises(LayoutMismatch, match=r"'sim' cannot be used\. .* Repeat the command that ended it"):
            call()
    with pytest.raises(LayoutMismatch, match=r"layout is .* Repeat the command that ended it.*, and after "):
        place.holder(place.wider).ask_claim()
    for noted in ("mismatch", "mismatches"):
        assert place.stored.pop(noted, None) != before.get(noted) or noted not in before
    assert place.stored == before
    ends = place.end()
    assert (ends.over, ends.end_ms) == (True, holder.outage_ms)
    assert min(place.holder(place.wider).claim(now=True).lanes_ms) == ends.end_ms


def test_a_pool_without_a_lease_is_not_over_before_its_end_is_confirmed(place: Place) -> None:
    holder = place.holder().claim()
    assert holder.release("10")
    place.end_unconfirmed()
    # nobody may start there yet
    with pytest.raises(LayoutMismatch):
        create(place.person(place.wider), place.now_ms())
    # a process of the old one may still begin
    assert place.holder().claim().until_ms <= holder.until_ms
    assert not place.end().over


# --- what starts there --------------------------------------------------------------------------------


def test_an_end_that_only_the_redis_clock_has_passed_is_yet_to_come(place: Place) -> None:
    place.holder().claim()
    place.end()
    place.stage.master.offset_us = 3_600_000_000
    with pytest.raises(LayoutMismatch, match="The pool was deleted and ends at"):
        place.holder(place.wider).ask_claim(ahead_ms=-3_600_000)


def test_a_person_creates_the_next_pool_once_the_last_one_is_over(place: Place) -> None:
    place.holder().claim()
    ends = place.end()
    assert isinstance(create(place.store, place.now_ms()), Exists)
    place.wait_until(ends.end_ms + 5)
    created = create(place.person(place.wider), place.now_ms())
    assert isinstance(created, Created)
    assert created.floor_ms == place.now_ms()
    assert isinstance(create(place.person(place.wider), place.now_ms()), Exists)


def test_what_people_count_stays_and_no_record_does(place: Place) -> None:
    holders = [place.holder().claim() for _ in range(2)]
    holders[0].ask_renew()
    with pytest.raises(LayoutMismatch):
        place.holder(place.wider).ask_claim()
    ends = place.end()
    place.wait_until(ends.end_ms)
    before = dict(place.stored)
    assert isinstance(place.holder(place.wider).ask_claim(), Granted)
    after = place.stored
    records = {field for field in before if field.startswith(("w:", "t:"))}
    assert len(records) == 4
    assert {field for field in after if field.startswith("w:")} == {"w:0"}
    assert records.isdisjoint(set(after) - {"w:0"})
    for name in ("mismatches", "mismatch"):
        assert after[name] == before[name]
    assert (after["claims"], before["claims"]) == ("3", "2")
    until, _, layout = after["layouts"].partition("|")
    assert int(until) == ends.end_ms
    assert f"layout={layout} " in place.config.signature
    assert int(after["version"]) > int(before["version"])


# --- what has other ids ------------------------------------------------------------------------------


def ended_with_ticks_of_a_ms() -> Place:
    """Return a pool that ended 50 ms ago."""
    config = Stage().config
    place = Place(replace(config, layout=replace(config.layout, tick_ms=1)))
    place.holder().claim()
    place.wait_until(place.end().end_ms + 50)
    return place


def starts(place: Place, how: str, config: PoolConfig) -> bool:
    """Try to start a pool with *config*; return whether it started now, with all times from now on."""
    with contextlib.suppress(LayoutMismatch):
        if how == "create":
            return isinstance(create(place.person(config), place.now_ms()), Created)
        return min(place.holder(config).claim(now=True).lanes_ms) == place.now_ms()
    return False


def ids_are_above(place: Place, layout: Layout, end_ms: int) -> bool:
    """Return whether every id of *layout* from now on is above every id of the pool of *place*."""
    old = place.config.layout
    below = old.compose(tick=old.first_tick_from(end_ms) - 1, backup=old.namespaces - 1, worker=old.workers - 1)
    return layout.compose(tick=layout.first_tick_from(place.now_ms())) > below | old.sequences - 1


def with_epoch(place: Place, later_ms: int, more_bits: int = 0) -> PoolConfig:
    """Return the pool with a layout whose epoch is *later_ms* later, and which has *more_bits* for worker ids."""
    layout = place.config.layout
    bits = layout.worker_bits + more_bits
    return replace(place.config, layout=replace(layout, epoch_ms=layout.epoch_ms + later_ms, worker_bits=bits))


@pytest.mark.parametrize("how", ["claim", "create"])
def test_what_starts_with_another_layout_has_ids_above_all_of_the_pool_before(how: str) -> None:
    found = set()
    for more_bits, later_ms in itertools.product(
        (-1, 0, 1), (-3_600_000, -100, -51, -1, 1, 49, 50, 51, 100, 3_600_000)
    ):
        place = ended_with_ticks_of_a_ms()
        end_ms = place.now_ms() - 50
        config = with_epoch(place, later_ms, more_bits)
        expected = ids_are_above(place, config.layout, end_ms)
        assert starts(place, how, config) is expected, (more_bits, later_ms)
        found.add((more_bits, expected))
    assert found == {(-1, False), (0, False), (0, True), (1, True)}


@pytest.mark.parametrize("how", ["claim", "create"])
def test_a_refusal_says_with_which_epoch_and_from_when_the_layout_can_start(how: str) -> None:
    place = ended_with_ticks_of_a_ms()
    late = with_epoch(place, 60_000)
    with pytest.raises(LayoutMismatch) as refused:
        create(place.person(late), place.now_ms())
    found = re.search(r"an epoch_ms of (\d+) or less in this layout, or the same after (.*) UTC", str(refused.value))
    assert found is not None
    # the advice holds for the ms of the refusal, and later only better
    epoch_ms, from_ms = int(found[1]), calendar.timegm(time.strptime(found[2], "%Y-%m-%d %H:%M:%S")) * 1000
    assert not starts(place, how, with_epoch(place, epoch_ms + 1 - place.config.layout.epoch_ms))
    place.wait_until(from_ms - 1000)
    assert not starts(place, how, late)
    place.wait_until(from_ms + 1000)
    assert starts(place, how, late)


# --- late ---------------------------------------------------------------------------------------------


def test_a_renewal_or_release_after_the_end_is_refused_and_disturbs_nobody(place: Place) -> None:
    late, later = place.holder().claim(), place.holder().claim()
    ends = place.end()
    place.wait_until(ends.end_ms)
    heir = place.holder().claim(now=True)
    assert heir.worker == late.worker
    for each, reason in ((late, LossReason.REASSIGNED), (later, LossReason.TOO_OLD)):
        refused = each.lost()
        assert (refused.reason, refused.alarm) == (reason, None)
        assert max(each.until_ms, each.outage_ms) <= ends.end_ms
        assert not each.release()
    assert isinstance(heir.ask_renew(), Renewed)


def test_the_first_to_come_after_the_end_may_be_a_worker_of_the_pool_that_ended(place: Place) -> None:
    late = place.holder().claim()
    ends = place.end()
    place.wait_until(ends.end_ms)
    assert late.lost().reason == LossReason.TOO_OLD
    assert min(Holder(place.store, place.now_ms).claim(now=True).lanes_ms) == ends.end_ms


def test_workers_of_the_old_layout_are_refused_once_another_one_has_started(place: Place) -> None:
    late = place.holder().claim()
    ends = place.end()
    place.wait_until(ends.end_ms)
    create(place.person(place.wider), place.now_ms())
    for _ in range(2):
        for call in (late.ask_renew, late.release):
            with pytest.raises(LayoutMismatch):
                call()
        assert isinstance(place.holder(place.wider).ask_claim(), Granted)
