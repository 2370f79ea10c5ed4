"""Decisions of the scripts after a loss, a plan or a silence: at the last ms at which they hold, and after.

On the Redis of the simulation, whose clock stands still between the steps of a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, PoolBroken
from snowredis.servers.scripts import Script
from snowredis.snowflake.administration import Administration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.replies import (
    Absent,
    Created,
    Granted,
    LossReason,
    Lost,
    NumberNoted,
    Renewed,
    Reply,
    Seen,
    Settling,
)
from tests.simulation.redis_model import RedisModel
from tests.simulation.world import World
from tests.support.holder import Holder

# lead, skew and slack differ, so that none stands for another
CONFIG = PoolConfig(
    name="p",
    layout=Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10),
    ttl_ms=3_000,
    max_clock_lead_ms=100,
    redis_skew_ms=250,
    failover_slack_ms=40,
    outage_reserve_ms=0,
)
MARGIN_MS = 100 + 250 + 40
FLOOR_MS = 3_000 + MARGIN_MS
WIDER = Layout(timestamp_bits=41, backup_bits=2, worker_bits=4, sequence_bits=8)
YEAR_MS = 366 * 86_400_000


class Pool(Administration):
    """A pool on a server whose clock the test moves."""

    where = "simulated"

    def __init__(self, config: PoolConfig, server: RedisModel | None = None) -> None:
        super().__init__(config)
        self.server = server or RedisModel(World(1), "redis")

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self.server.eval(script.source, keys, args)

    def close(self) -> None: ...

    def now_ms(self) -> int:
        return self.server.now_us // 1000

    def pass_ms(self, ms: int) -> None:
        self.server.offset_us += ms * 1000

    def stored_ms(self, field: str) -> int:
        return int(self.server.data[pool_keys("p")[0]][field])

    def holder(self) -> Holder:
        return Holder(self, self.now_ms)

    def claim_of(self, seen: Seen) -> Reply:
        holder = self.holder()
        holder.seen = seen
        return holder.ask_claim()

    def move(self) -> None:
        """Let another server have the data."""
        self.server.restart(self.server.copy_data())


def new_pool(config: PoolConfig = CONFIG) -> Pool:
    pool = Pool(config)
    assert isinstance(pool.create(pool.now_ms()), Created)
    pool.pass_ms(10_000)
    return pool


@pytest.fixture
def pool() -> Pool:
    return new_pool()


def status(reply: Reply) -> str:
    return type(reply).__name__


def test_a_change_of_the_layout_is_planned_for_a_moment_that_comes_within_a_year(pool: Pool) -> None:
    now_ms = pool.now_ms()
    late = status(pool.change_layout(WIDER, now_ms, now_ms))
    assert late == status(pool.change_layout(WIDER, now_ms + YEAR_MS + 1, now_ms)) == "Late"
    for at_ms in (now_ms + YEAR_MS, now_ms + 1):
        planned = pool.change_layout(WIDER, at_ms, now_ms)
        assert planned.new_floor_ms == at_ms + FLOOR_MS


def test_a_change_of_a_pool_that_was_deleted_meanwhile_finds_no_pool(pool: Pool) -> None:
    pool.delete(pool.now_ms())
    assert status(pool.change_layout(WIDER, pool.now_ms() + 100, pool.now_ms())) == "Absent"


def test_the_layout_changes_at_its_moment_and_its_ids_begin_at_the_planned_floor(pool: Pool) -> None:
    old = pool.holder().claim()
    moment_ms = pool.now_ms() + 1_000
    pool.change_layout(WIDER, moment_ms, pool.now_ms())
    pool.pass_ms(999)
    assert isinstance(old.ask_renew(), Renewed)
    with pytest.raises(LayoutMismatch, match="changes to these settings at"):
        Pool(replace(CONFIG, layout=WIDER), pool.server).holder().ask_claim()
    pool.pass_ms(1)
    with pytest.raises(LayoutMismatch):
        old.ask_renew()
    # no process with the new layout has come
    assert pool.stored_ms("floor") < moment_ms
    wider = Pool(replace(CONFIG, layout=WIDER), pool.server)
    reply = wider.holder().ask_claim()
    assert isinstance(reply, Settling)
    assert (reply.floor_ms, reply.wait_ms) == (moment_ms + FLOOR_MS, FLOOR_MS)
    assert old.until_ms <= reply.floor_ms
    pool.pass_ms(FLOOR_MS)
    lanes_ms = wider.holder().claim().lanes_ms
    assert lanes_ms == (moment_ms + FLOOR_MS,) * 4


def test_a_plan_that_is_undone_changes_nothing(pool: Pool) -> None:
    holder = pool.holder().claim()
    pool.change_layout(WIDER, pool.now_ms() + 100, pool.now_ms())
    pool.change_layout(CONFIG.layout, pool.now_ms() + 100, pool.now_ms())
    pool.pass_ms(200)
    assert isinstance(holder.ask_renew(), Renewed)
    assert isinstance(pool.holder().ask_claim(), Granted)


def test_no_outage_lane_reaches_beyond_a_planned_floor() -> None:
    pool = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    now_ms = pool.now_ms()
    reserved_ms = max(pool.holder().claim().outage_ms, pool.stored_ms("outage_floor"))
    first_ms = reserved_ms - FLOOR_MS
    early = pool.change_layout(WIDER, first_ms - 1, now_ms)
    assert (status(early), early.earliest_ms) == ("Early", first_ms)
    planned = pool.change_layout(WIDER, first_ms, now_ms)
    assert planned.new_floor_ms == reserved_ms
    pool.pass_ms(5_000)
    assert pool.holder().claim().outage_ms <= reserved_ms


def test_a_number_is_not_noted_in_a_pool_that_is_not_there() -> None:
    pool = Pool(CONFIG)
    assert isinstance(pool.note_number(1, pool.now_ms()), Absent)
    assert not pool.server.data


def test_the_highest_number_that_was_noted_stays(pool: Pool) -> None:
    for number in (3, 7, 5):
        assert isinstance(pool.note_number(number, pool.now_ms()), NumberNoted)
    assert pool.stored_ms("highest_number") == 7


@pytest.mark.parametrize("left_ms", [MARGIN_MS, MARGIN_MS + 1])
def test_another_server_adopts_a_lease_whose_reservation_it_could_not_have_given_away(pool: Pool, left_ms: int) -> None:
    holder = pool.holder().claim()
    pool.pass_ms(holder.until_ms - pool.now_ms() - left_ms)
    pool.move()
    reply = holder.ask_renew()
    assert pool.stored_ms("floor") == pool.now_ms() + FLOOR_MS
    if left_ms > MARGIN_MS:
        assert isinstance(reply, Renewed)
        assert reply.adopted
    else:
        assert isinstance(reply, Lost)
        assert reply.reason is LossReason.TOO_OLD
    settling = pool.holder().ask_claim()
    assert isinstance(settling, Settling)
    assert settling.wait_ms == FLOOR_MS
    pool.pass_ms(FLOOR_MS - 1)
    assert isinstance(pool.holder().ask_claim(), Settling)
    pool.pass_ms(1)
    assert isinstance(pool.holder().ask_claim(), Granted)


def test_an_adopted_lease_keeps_its_times_and_another_worker_id_begins_at_the_floor(pool: Pool) -> None:
    holder = pool.holder().claim()
    worker, lanes_ms, until_ms = holder.worker, holder.lanes_ms, holder.until_ms
    pool.move()
    # a clock that is behind: what was granted before the loss stays
    assert isinstance(holder.ask_renew(ahead_ms=-1_000), Renewed)
    assert (holder.worker, holder.lanes_ms, holder.until_ms) == (worker, lanes_ms, until_ms)
    floor_ms = pool.stored_ms("floor")
    for _ in range(2):
        pool.pass_ms(2_000)
        assert isinstance(holder.ask_renew(), Renewed)
    newcomer = pool.holder().claim()
    assert newcomer.worker != worker
    assert set(newcomer.lanes_ms) == {floor_ms}


@pytest.mark.parametrize("version_ahead", [0, 1])
def test_a_pool_that_is_older_than_what_a_client_saw_raises_the_floor_and_an_alarm(
    pool: Pool, version_ahead: int
) -> None:
    holder = pool.holder().claim()
    holder.seen = Seen(holder.seen.incarnation, holder.seen.version + version_ahead)
    last_ms, incarnation = pool.stored_ms("last"), holder.incarnation
    pool.pass_ms(500)
    reply = pool.claim_of(holder.seen)
    assert (reply.incarnation != incarnation) == bool(version_ahead)
    assert isinstance(reply, Settling if version_ahead else Granted)
    if version_ahead:
        assert reply.alarm is not None
        assert (reply.alarm.from_ms, reply.alarm.until_ms) == (last_ms, pool.now_ms() + FLOOR_MS)
    else:
        assert reply.alarm is None


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("longer_ms", [0, 1])
def test_a_silence_longer_than_a_ttl_raises_the_floor_if_rollbacks_are_guarded(guarded: bool, longer_ms: int) -> None:
    pool = new_pool(replace(CONFIG, guard_rollbacks=guarded))
    # what new_pool() let pass was a silence
    pool.holder().ask_claim()
    pool.pass_ms(FLOOR_MS)
    pool.holder().ask_claim()
    pool.pass_ms(FLOOR_MS)
    before = pool.stored_ms("floor")
    last_ms = pool.stored_ms("last")
    pool.pass_ms(last_ms + CONFIG.ttl_ms + longer_ms - pool.now_ms())
    pool.holder().ask_claim()
    assert (pool.stored_ms("floor") > before) == (guarded and longer_ms > 0)


@pytest.mark.parametrize("back_ms", [250, 251])
def test_a_floor_of_a_clock_that_was_ahead_is_lowered_to_what_may_have_been_granted(pool: Pool, back_ms: int) -> None:
    pool.server.offset_us += 3_600_000_000
    pool.move()
    pool.holder().ask_claim()
    high_ms = pool.now_ms() + FLOOR_MS
    assert pool.stored_ms("floor") == high_ms
    pool.pass_ms(-back_ms)
    pool.holder().ask_claim()
    assert pool.stored_ms("floor") == (high_ms if back_ms <= CONFIG.redis_skew_ms else pool.now_ms() + FLOOR_MS)


def test_what_may_have_been_granted_bounds_a_floor_of_a_clock_that_was_ahead(pool: Pool) -> None:
    holder = pool.holder().claim()
    pool.move()
    holder.ask_renew()
    assert pool.stored_ms("top") == holder.until_ms
    pool.pass_ms(-100_000)
    pool.holder().ask_claim()
    assert pool.stored_ms("floor") == holder.until_ms


def test_a_pool_that_has_forgotten_only_how_long_an_outage_lane_is_was_rolled_back() -> None:
    pool = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    one, other = pool.holder().claim(), pool.holder().claim()
    # while it is planned, no outage lane reaches beyond the change
    moment_ms = pool.now_ms() + 60_000
    pool.change_layout(WIDER, moment_ms, pool.now_ms())
    for _ in range(2):
        pool.pass_ms(2_000)
        one.ask_renew()
    pool.change_layout(CONFIG.layout, moment_ms, pool.now_ms())
    before, until_ms, outage_ms = pool.server.copy_data(), one.until_ms, one.outage_ms
    # with a clock that shows less, only the outage lane gets longer
    one.ask_renew(ahead_ms=-1)
    assert (one.until_ms, one.outage_ms > outage_ms) == (until_ms, True)
    pool.server.data = before
    while other.seen.version <= one.seen.version:
        other.ask_renew()
    assert one.ask_renew().alarm is not None


def test_a_constant_of_a_whole_day_is_read_when_the_pool_is_deleted() -> None:
    pool = new_pool(replace(CONFIG, ttl_ms=86_400_000))
    assert not Pool(CONFIG, pool.server).delete(pool.now_ms()).guessed


@pytest.mark.parametrize(
    "field", [name for name in LeaseRecord._fields if name.endswith("_ms") and name != "lowered_ms"]
)
def test_a_record_with_a_time_that_tostring_would_not_write_whole_is_broken(pool: Pool, field: str) -> None:
    one = pool.holder().claim()
    stored = pool.server.data[pool_keys("p")[0]]
    record = LeaseRecord.parse(stored["w:0"])
    assert record is not None
    late: Any = {field: (10**14,) if field == "lanes_ms" else 10**14}
    stored["w:0"] = record._replace(**late).pack()
    with pytest.raises(PoolBroken):
        one.ask_renew()


@pytest.mark.parametrize("why", ["another server", "nothing is known", "a broken field", "a silence"])
def test_a_pool_that_may_have_lost_leases_is_deleted_with_a_floor_behind_all_of_them(why: str) -> None:
    durability = "none" if why == "nothing is known" else "detect"
    # nothing ran for longer than a ttl
    pool = new_pool(replace(CONFIG, durability=durability, guard_rollbacks=why == "a silence"))
    if why == "another server":
        pool.move()
    elif why == "a broken field":
        pool.server.data[pool_keys("p")[0]]["records"] = "many"
    assert pool.delete(pool.now_ms()).floor_ms == pool.now_ms() + FLOOR_MS


def test_another_loss_after_a_change_raises_the_floor_that_holders_lower(pool: Pool) -> None:
    pool.change_layout(WIDER, pool.now_ms() + 1_000, pool.now_ms())
    pool.pass_ms(1_000)
    wider = Pool(replace(CONFIG, layout=WIDER), pool.server)
    for _ in range(2):
        pool.move()
        assert isinstance(wider.holder().ask_claim(), Settling)
        assert pool.stored_ms("sure_floor") == pool.now_ms() + FLOOR_MS
        pool.pass_ms(1_000)


def test_a_new_pool_without_outage_lanes_begins_after_those_of_a_deleted_one() -> None:
    deleted = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    one = deleted.holder().claim()
    deleted.delete(deleted.now_ms())
    pool = Pool(CONFIG, deleted.server)
    pool.create(pool.now_ms())
    assert pool.stored_ms("floor") == one.outage_ms


def test_an_index_that_cannot_be_complete_is_accepted_when_it_is_the_same_twice(pool: Pool) -> None:
    """A person removed a record, and the index is rebuilt in many steps."""
    for _ in range(3):
        pool.holder().claim()
    key, leases, _ = pool_keys("p")
    del pool.server.data[key]["w:1"], pool.server.data[leases]
    pool.server.scan_page = 1
    asked = 0
    while not isinstance(pool.holder().ask_claim(), Granted):
        asked += 1
        assert asked < 100
    assert asked > 10


@pytest.mark.parametrize("is_same", [True, False])
def test_a_pool_that_is_created_again_has_its_outage_lanes_if_its_server_lost_nothing(is_same: bool) -> None:
    pool = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    one = pool.holder().claim()
    pool.delete(pool.now_ms())
    if not is_same:
        pool.move()
    pool.create(pool.now_ms())
    horizon_ms = pool.now_ms() + 60_000 + MARGIN_MS
    assert pool.stored_ms("outage_floor") == (one.outage_ms if is_same else horizon_ms)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_deleted_pool_is_remembered_for_a_day_after_the_last_of_its_lanes_has_ended(is_over: bool) -> None:
    deleted = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    one = deleted.holder().claim()
    deleted.delete(deleted.now_ms())
    deleted.pass_ms(one.outage_ms + 86_400_000 - deleted.now_ms() - (not is_over))
    # without outage lanes: those of before may be ordinary lanes now
    pool = Pool(CONFIG, deleted.server)
    pool.create(pool.now_ms())
    assert pool.stored_ms("floor") == (0 if is_over else one.outage_ms)


@pytest.mark.parametrize("passed_ms", [0, 5_000])
def test_a_refused_process_keeps_its_outage_lane_unless_the_pool_may_have_granted_it(passed_ms: int) -> None:
    pool = new_pool(replace(CONFIG, outage_reserve_ms=60_000))
    refused = pool.holder().claim()
    pool.server.wipe()
    shorter = Pool(replace(CONFIG, outage_reserve_ms=10_000), pool.server)
    shorter.create(shorter.now_ms())
    shorter.pass_ms(passed_ms)
    # at first its outage lane would end before the floor of all of them, and is not reserved
    newcomer = shorter.holder().claim()
    assert (newcomer.outage_ms > newcomer.lanes_ms[-1]) == bool(passed_ms)
    with pytest.raises(LayoutMismatch) as error:
        refused.ask_renew()
    assert error.value.keeps_lanes == (not passed_ms)
