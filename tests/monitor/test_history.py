"""Which process had a worker id at a tick, for events made in the test; times are small numbers of ms."""

import re
from dataclasses import replace
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import InvalidId
from snowredis.monitor.history import Event, History, Whois, find_maker
from snowredis.monitor.lease import Lease, Owner
from snowredis.monitor.pool import PoolInfo
from snowredis.snowflake.protocol.messages import AlarmReason, LossReason, WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.record import EventKind, FloorReason

TTL, LEAD = 30_000, 2_500
LAYOUT = Layout(timestamp_bits=41, datacenter_bits=2, backup_bits=2, worker_bits=8, sequence_bits=10, epoch_ms=0)
CONFIG = PoolConfig(name="orders", layout=LAYOUT, ttl_ms=TTL, max_clock_lead_ms=LEAD)
INFO = PoolInfo(
    "orders", LAYOUT, CONFIG, now_ms=10_000_000, created_ms=0, floor_ms=0, capacity=256, used=0, free=256
)  # fmt: skip
PAST = History(INFO, ())


def past_of(**values: Any) -> History:
    """Return an empty history of a pool with these fields of PoolInfo and of History."""
    own = {name: values.pop(name) for name in ("records",) if name in values}
    return History(replace(INFO, **values), (), **own)


def event(
    kind: EventKind, at_ms: int, worker: int = -1, who: str = "", first: int = 0, until: int = 0, **more: Any
) -> Event:
    """Return an event of the host *who*, with the length of that name as pid."""
    return Event(at_ms, kind, worker, Owner(who, len(who)), first, until, f"{at_ms}-0", **more)


def claimed(at_ms: int, who: str, first: int, *, lanes: tuple[int, ...] = ()) -> Event:
    lanes = lanes or (first, first, first, first)
    return event(EventKind.CLAIMED, at_ms, 7, who, first, at_ms + TTL, lanes_ms=lanes)


def released(at_ms: int, who: str, first: int, until: int) -> Event:
    return event(EventKind.RELEASED, at_ms, 7, who, first, until, stats=WorkerStats(100, 10))


def expired(at_ms: int, who: str, first: int, until: int) -> Event:
    return event(EventKind.EXPIRED, at_ms, 7, who, first, until, stats=WorkerStats(100, 10))


BORN = event(EventKind.FLOOR, 1_000_000, reason=FloorReason.NO_POOL)


def found(events: list[Event], tick_ms: int, *, lane: int = 0, worker: int = 7, past: History = PAST) -> Whois:
    an_id = LAYOUT.compose(tick=tick_ms, backup=lane, worker=worker)
    return find_maker(replace(past, events=events), an_id)


def asked(events: list[Event], tick_ms: int, *, lane: int = 0, past: History = PAST) -> tuple[str, str]:
    whois = found(events, tick_ms, lane=lane, past=past)
    return whois.certainty, whois.maker.host if whois.maker else ""


TWO = [
    BORN,
    claimed(1_100_000, "anna", 0),
    expired(1_300_000, "anna", 0, 1_230_000),
    claimed(1_300_000, "berta", 1_230_000),
]


def test_one_after_the_other_held_it_and_the_tick_says_who() -> None:
    assert asked(TWO, 1_100_500) == ("certain", "anna")
    assert asked(TWO, 1_229_999) == ("certain", "anna")
    assert asked(TWO, 1_230_000) == ("certain", "berta")
    maker = found(TWO, 1_229_999).maker
    assert maker is not None
    assert (maker.host, maker.pid, maker.end_ms, maker.state) == ("anna", 4, 1_300_000, "expired")
    assert found(TWO, 1_229_999, worker=8).maker is None


def test_the_tick_decides_and_not_the_time_of_the_claim() -> None:
    # berta's marks lie behind the time of her claim: her clock may have been behind
    assert asked(TWO, 1_250_000) == ("certain", "berta")
    # cora's reservation begins ahead of it
    ahead = [
        BORN,
        claimed(1_100_000, "anna", 0),
        released(1_110_000, "anna", 0, 1_112_000),
        claimed(1_111_000, "cora", 1_112_000),
    ]
    assert asked(ahead, 1_111_999) == ("certain", "anna")
    assert asked(ahead, 1_112_000) == ("certain", "cora")


def test_lanes_are_looked_at_one_by_one() -> None:
    events = [
        BORN,
        claimed(1_100_000, "anna", 0),
        released(1_150_000, "anna", 0, 1_150_000),
        claimed(1_160_000, "berta", 1_150_000, lanes=(1_150_000, 0, 0, 0)),
    ]
    assert asked(events, 1_140_000, lane=0) == ("certain", "anna")
    # anna gave namespace 1 back unused, so only berta, whose clock went back, can have used it
    assert asked(events, 1_140_000, lane=1) == ("certain", "berta")


def test_a_history_that_was_trimmed_is_not_trusted_before_its_beginning() -> None:
    trimmed = TWO[2:]
    # the expiry still names anna, and where her first lane began
    assert asked(trimmed, 1_200_000) == ("certain", "anna")
    assert asked(trimmed, 1_200_000, lane=2) == ("probable", "anna")
    only_berta = TWO[3:]
    assert asked(only_berta, 1_240_000) == ("certain", "berta")
    assert asked(only_berta, 1_200_000) == ("unknown", "")
    assert "as far as the events go" in found(only_berta, 1_200_000).reason


def test_a_claim_that_the_pool_counted_and_the_events_lack_makes_nothing_certain() -> None:
    assert asked(TWO, 1_100_500, past=past_of(claims=3)) == ("probable", "anna")
    assert asked(TWO, 1_100_500, past=past_of(claims=2)) == ("certain", "anna")


def floor(at_ms: int, why: str = FloorReason.OTHER_SERVER) -> Event:
    return event(EventKind.FLOOR, at_ms, first=at_ms + TTL + 2 * LEAD, reason=why)


@pytest.mark.parametrize("why", [FloorReason.OTHER_SERVER, FloorReason.OTHER_POOL])
def test_after_a_restart_of_redis_its_newest_events_may_be_missing(why: str) -> None:
    events = [BORN, claimed(1_100_000, "anna", 0), floor(1_200_000, why), claimed(1_300_000, "berta", 1_235_000)]
    # the claim of another process may have been forgotten
    assert asked(events, 1_150_000) == ("probable", "anna")
    assert "Redis may have lost events" in found(events, 1_150_000).reason
    assert asked(events, 1_235_000) == ("certain", "berta")


def test_who_came_back_after_the_restart_held_it_all_the_time() -> None:
    back = event(EventKind.ADOPTED, 1_201_000, 7, "anna", 0, 1_231_000, reason=FloorReason.OTHER_SERVER)
    events = [BORN, claimed(1_100_000, "anna", 0), floor(1_200_000), back]
    assert asked(events, 1_150_000) == ("certain", "anna")
    # somebody else came back: the claim of that one was forgotten
    other = event(EventKind.ADOPTED, 1_201_000, 7, "berta", 1_120_000, 1_231_000, reason=FloorReason.OTHER_SERVER)
    events[-1] = other
    assert asked(events, 1_150_000) == ("certain", "berta")
    assert asked(events, 1_150_000, lane=3) == ("probable", "berta")
    assert asked(events, 1_119_999) == ("probable", "anna")


def test_who_ended_before_the_restart_is_known_up_to_its_end() -> None:
    events = [BORN, claimed(1_100_000, "anna", 0), released(1_150_000, "anna", 0, 1_150_000), floor(1_200_000)]
    assert asked(events, 1_140_000) == ("probable", "anna")
    assert asked(events, 1_190_000) == ("unknown", "")
    assert "lost events" in found(events, 1_190_000).reason


def test_a_rollback_makes_what_was_served_twice_unknown() -> None:
    events = [
        BORN,
        claimed(1_100_000, "anna", 0),
        expired(1_190_000, "anna", 0, 1_130_000),
        claimed(1_190_000, "berta", 1_130_000),
        floor(1_200_000, FloorReason.ROLLED_BACK),
        event(EventKind.ALARM, 1_200_000, reason=AlarmReason.IDS_MAY_REPEAT),
    ]
    assert asked(events, 1_191_000) == ("probable", "berta")
    # its adoption does not tell which of two processes used the ticks before
    back = event(EventKind.ADOPTED, 1_201_000, 7, "berta", 1_130_000, 1_231_000, reason=FloorReason.ROLLED_BACK)
    assert asked([*events, back], 1_191_000) == ("probable", "berta")


def test_copies_of_a_process_with_one_lease_make_it_uncertain() -> None:
    lost = event(EventKind.LOST, 1_140_000, 7, "anna", 0, 1_150_000, reason=LossReason.COPIED)
    events = [BORN, claimed(1_100_000, "anna", 0), lost]
    assert asked(events, 1_149_000) == ("probable", "anna")
    assert "a process was refused on this worker id" in found(events, 1_149_000).reason
    assert asked(events, 1_150_000) == ("certain", "anna")


def test_ids_of_the_future_are_not_of_the_pool_and_of_those_of_before_it_redis_knows_nothing() -> None:
    """A pool that Redis lost is another one afterwards, and its own ids are of before that."""
    past = past_of(now_ms=1_400_000, created_ms=1_000_000)
    for tick_ms, reason in (
        (1_500_000, "its time is in the future: it was made elsewhere"),
        (900_000, "Redis knows nothing of its time, .* it was made before Redis lost the pool, or elsewhere"),
    ):
        whois = found(TWO, tick_ms, past=past)
        assert (whois.certainty, whois.maker) == ("unknown", None)
        assert re.fullmatch(reason, whois.reason)


def test_an_id_of_another_layout_or_datacenter_is_none_of_this_pool() -> None:
    def history(**constants: Any) -> History:
        config = replace(CONFIG, **constants)
        return replace(past_of(config=config, layout=config.layout), events=TWO)

    mine = LAYOUT.compose(tick=1_100_500, datacenter=1, worker=7, sequence=3)
    good = find_maker(history(datacenter=1), mine)
    assert (good.certainty, good.maker.host if good.maker else "") == ("certain", "anna")
    assert "datacenter" in find_maker(history(datacenter=2), mine).reason
    narrow = Layout(timestamp_bits=10, worker_bits=2, backup_bits=0, sequence_bits=2)
    assert find_maker(history(layout=narrow, outage_reserve_ms=0), mine).parts is None
    with pytest.raises(InvalidId):
        find_maker(history(), -1)


def record(who: str, claimed_ms: int, until_ms: int) -> Lease:
    return Lease(7, "alive", Owner(who, len(who)), claimed_ms, claimed_ms, until_ms, claimed_ms, until_ms)


def test_the_present_record_says_how_far_the_last_reservation_reaches() -> None:
    past = past_of(now_ms=1_320_000, records={7: record("berta", 1_300_000, 1_350_000)})
    maker = found(TWO, 1_349_999, past=past).maker
    assert maker is not None
    assert (maker.host, maker.state) == ("berta", "alive")
    assert asked(TWO, 1_350_000, past=past)[0] == "unknown"


def test_a_record_whose_claim_is_forgotten_is_probable() -> None:
    past = past_of(now_ms=1_320_000, records={7: record("cora", 1_290_000, 1_350_000)})
    trimmed = [event(EventKind.CLAIMED, 1_295_000, 3, "dora", 0, 1, lanes_ms=(0, 0, 0, 0))]
    assert asked(trimmed, 1_310_000, past=past) == ("probable", "cora")
    assert asked(trimmed, 1_200_000, past=past)[0] == "unknown"


def test_an_id_of_the_outage_lane_is_of_the_process_that_had_the_lane_even_after_its_lease_was_lost() -> None:
    lanes = (0, 0, 0, 500_000)
    reserved = replace(claimed(1_100_000, "anna", 0, lanes=lanes), outage_until_ms=80_000_000)
    next_lanes = (1_230_000, 1_230_000, 1_230_000, 80_000_000)
    taken = replace(claimed(1_300_000, "berta", 1_230_000, lanes=next_lanes), outage_until_ms=88_000_000)
    events = [BORN, reserved, expired(1_300_000, "anna", 0, 1_230_000), taken]
    past = past_of(now_ms=90_000_000)
    # long after berta has the worker id
    assert asked(events, 5_000_000, lane=3, past=past) == ("certain", "anna")
    assert asked(events, 5_000_000, lane=2, past=past) == ("certain", "berta")
    assert asked(events, 80_000_000, lane=3, past=past) == ("certain", "berta")
    # anna released it, with what was used of the lane
    gone = replace(released(1_200_000, "anna", 0, 1_150_000), outage_until_ms=600_000)
    taken = replace(taken, lanes_ms=(*next_lanes[:3], 600_000))
    events = [BORN, reserved, gone, taken]
    assert asked(events, 599_999, lane=3, past=past) == ("certain", "anna")
    assert asked(events, 600_000, lane=3, past=past) == ("certain", "berta")


def test_an_outage_lane_says_nothing_of_the_other_lanes_of_a_lease_whose_claim_is_forgotten() -> None:
    back = event(EventKind.ADOPTED, 1_201_000, 7, "anna", 0, 1_231_000, reason=FloorReason.OTHER_SERVER)
    events = [
        BORN,
        floor(1_200_000),
        replace(back, outage_until_ms=80_000_000),
        expired(1_300_000, "anna", 0, 1_231_000),
    ]
    assert asked(events, 1_230_999) == ("certain", "anna")
    assert asked(events, 1_231_000) == ("unknown", "")
    assert asked(events, 1_231_000, lane=3) == ("probable", "anna")
    # nor in its record, of a server that has forgotten what came after it, and has run no script yet
    now = record("anna", 0, 1_231_000)._replace(outage_from_ms=1_240_000, outage_until_ms=80_000_000)
    past = past_of(now_ms=1_320_000, records={7: now})
    assert asked(events[:3], 1_231_000, past=past) == ("unknown", "")
    assert asked(events[:3], 1_250_000, lane=3, past=past) == ("probable", "anna")


def test_a_lease_that_was_taken_over_has_two_holdings_one_after_the_other() -> None:
    lanes, taken_ms = (0, 0, 0, 500_000), 1_600_000
    begun = replace(claimed(1_100_000, "anna", 0, lanes=lanes), outage_until_ms=80_000_000)
    ended = replace(expired(1_300_000, "anna", 0, 1_230_000), renewed_ms=1_200_000)
    heir = Owner("berta", 5, taken_ms=taken_ms)
    back = replace(event(EventKind.RETURNED, 1_700_000, 7, "berta", 0, 1_730_000, ended_ms=1_300_000), owner=heir)
    now = record("berta", 1_100_000, 1_730_000)._replace(owner=heir, outage_until_ms=81_000_000, from_ms=0)
    past = past_of(now_ms=1_701_000, records={7: now})
    events = [BORN, begun, ended, back]
    assert asked(events, 1_150_000, past=past) == ("certain", "anna")
    # a process that ended before Redis saw it may have had the lease between the two
    assert asked(events, 1_580_000, lane=3, past=past) == ("probable", "anna")
    assert asked(events, taken_ms, lane=3, past=past) == ("probable", "berta")
    assert asked(events, 1_710_000, past=past) == ("certain", "berta")
    gone = replace(released(1_720_000, "berta", 0, 1_719_000), owner=heir)
    over = replace(past, records={})
    assert asked([*events, gone], 1_718_000, past=over) == ("certain", "berta")
    assert asked([*events, gone], 1_150_000, past=over) == ("certain", "anna")


def test_a_lease_that_was_taken_over_before_it_ended_is_known_from_the_record() -> None:
    begun = claimed(1_100_000, "anna", 0)
    now = record("berta", 1_100_000, 1_160_000)._replace(owner=Owner("berta", 5, taken_ms=1_120_000), from_ms=0)
    past = past_of(now_ms=1_131_000, records={7: now})
    assert asked([BORN, begun], 1_119_999, past=past) == ("probable", "anna")
    assert asked([BORN, begun], 1_120_000, past=past) == ("probable", "berta")
    # the same process, which goes on
    same = now._replace(owner=Owner("anna", 4))
    assert asked([BORN, begun], 1_120_000, past=replace(past, records={7: same})) == ("certain", "anna")


def test_a_process_of_a_container_with_equal_host_and_pid_is_another_one() -> None:
    def of(container: str, one: Event) -> Event:
        return replace(one, owner=one.owner._replace(generator=f"{container}-1"))

    # its claim is not among the events
    other = event(EventKind.CLOCK_BACK, 1_160_000, 7, "web", 1_150_000, 1_190_000)
    events = [BORN, of("aa", claimed(1_100_000, "web", 1_100_000)), of("bb", other)]
    makers = [found(events, tick_ms).maker for tick_ms in (1_120_000, 1_155_000)]
    assert [maker and maker.owner.generator for maker in makers] == ["aa-1", "bb-1"]
