"""New ids clash with nothing, keep their tick and their order; and the proof sees where they would not."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snowredis.merge.plan.scan import find_clashes, prove

from snowredis.core.layout import Layout
from snowredis.merge import MergeError
from snowredis.merge.new_ids import counter_offset, lane_mask, lanes_needed, new_ids, unused_lanes

# small, so that ticks are full and lanes are few
LAYOUTS = [
    Layout(timestamp_bits=4, datacenter_bits=1, backup_bits=1, worker_bits=3, sequence_bits=2),
    Layout(
        timestamp_bits=4, datacenter_bits=0, backup_bits=0, worker_bits=4, sequence_bits=2, worker_last=True
    ),
]
IDS = st.sets(st.integers(0, 1023), max_size=60).map(sorted)


@given(st.sampled_from(LAYOUTS), IDS, IDS)
def test_ids_of_a_layout_get_new_ones_of_the_same_tick_in_the_same_order(
    layout: Layout, kept: list[int], changed: list[int]
) -> None:
    kept, changed = ([an_id for an_id in ids if not an_id >> layout.total_bits] for ids in (kept, changed))
    scan = find_clashes(iter(kept), iter(changed), layout)
    assert list(scan.clashes) == sorted({*kept} & {*changed})
    assert (scan.kept, scan.changed) == (len(kept), len(changed))
    assert scan.lanes == {an_id & lane_mask(layout) for an_id in [*kept, *changed]}
    needed, _ = lanes_needed(scan.clashes, layout)
    lanes = sorted(islice(unused_lanes(layout, scan.lanes), needed))
    if len(lanes) < needed:
        return
    pairs = list(new_ids(scan.clashes, layout, lanes))
    old, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assert old == list(scan.clashes)
    assert new == sorted(set(new))
    assert not {*new} & {*kept, *changed}
    assert [layout.decode(an_id).tick for an_id in new] == [layout.decode(an_id).tick for an_id in old]
    prove("t.id", kept, changed, old, new)


@given(st.sets(st.integers(-50, 5000), min_size=1), st.sets(st.integers(-50, 5000), min_size=1))
def test_a_counters_offset_leaves_every_number_in_use_behind(kept: set[int], changed: set[int]) -> None:
    offset = counter_offset(min(changed), max(kept | changed), 1 << 40, "t.id")
    new = sorted(number + offset for number in changed)
    assert not {*new} & (kept | changed)
    assert set(str(offset)) <= {"1", "0"}
    prove("t.id", sorted(kept), sorted(changed), sorted(changed), new)


def test_a_narrow_column_gets_the_least_offset_and_then_none() -> None:
    assert counter_offset(1, 9_999, 1 << 31, "t.id") == 100_000
    assert counter_offset(1, 16_000, (1 << 15) - 1, "t.id") == 16_000
    with pytest.raises(MergeError, match="widen the column"):
        counter_offset(1, 17_000, (1 << 15) - 1, "t.id")


def test_unused_lanes_are_of_datacenters_in_use_and_of_the_workers_that_are_given() -> None:
    layout = LAYOUTS[0]
    used = [layout.compose(tick=0, datacenter=1, worker=7)]
    first, second = islice(map(layout.decode, unused_lanes(layout, used)), 2)
    assert (first.datacenter, first.worker) == (1, 6)
    assert (second.datacenter, second.worker) == (1, 5)
    only = [layout.decode(lane) for lane in unused_lanes(layout, used, range(2))]
    assert {parts.worker for parts in only} == {0, 1}
    assert len(only) == 2 * layout.datacenters * layout.namespaces


@pytest.mark.parametrize(
    ("kept", "changed", "old", "new", "message"),
    [
        ([1, 2], [2, 3], [], [], "2 is in both databases"),
        ([1, 2], [2, 3], [2], [3], "3 is a new id of the plan, and is in use"),
        ([1, 2], [2, 3], [2], [1], "1 is a new id of the plan, and is in use"),
        # a chain: the new id of one is the old id of another
        ([1, 2], [1, 2], [1, 2], [2, 9], "2 is a new id of the plan, and is in use"),
        ([1, 2], [1, 2], [1, 2], [9, 9], "9 is a new id of the plan, and is in use"),
        ([1, 2], [3], [2], [9], "2 is to get a new id, and does not exist"),
    ],
)
def test_the_proof_refuses_ids_that_clash(
    kept: list[int], changed: list[int], old: list[int], new: list[int], message: str
) -> None:
    with pytest.raises(MergeError) as refused:
        prove("t.id", kept, changed, old, new)
    assert message in str(refused.value)
    assert "make a new plan" in str(refused.value)
