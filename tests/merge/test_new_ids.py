"""New ids clash with nothing, keep their tick and their order; and the proof sees where they would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snowredis.core.layout import Layout
from snowredis.merge import MergeError
from snowredis.merge.planning import counter_offset, new_ids, unused_lanes
from snowredis.merge.workspace import IdStore, Workspace, lane_mask

# small, so that ticks are full and lanes are few
LAYOUTS = [
    Layout(timestamp_bits=4, datacenter_bits=1, backup_bits=1, worker_bits=3, sequence_bits=2),
    Layout(timestamp_bits=4, datacenter_bits=0, backup_bits=0, worker_bits=4, sequence_bits=2, worker_last=True),
]


@pytest.fixture(scope="module")
def store() -> Iterator[IdStore]:
    with Workspace() as place:
        yield IdStore(place)


def fill(store: IdStore, kept: Iterable[int], changed: Iterable[int], number: int = 1) -> None:
    for table, ids in (("kept", kept), ("changed", changed)):
        store.rows(f"DELETE FROM {table} WHERE domain = {number}")
        for an_id in ids:
            store.rows(f"INSERT INTO {table} VALUES ({number}, {an_id})")
    store.rows("DELETE FROM mapping")


IDS = st.sets(st.integers(0, 1023), max_size=60).map(sorted)


@settings(max_examples=25)
@given(st.sampled_from(LAYOUTS), IDS, IDS)
def test_ids_of_a_layout_get_new_ones_of_the_same_tick_in_the_same_order(
    store: IdStore, layout: Layout, kept: list[int], changed: list[int]
) -> None:
    kept, changed = ([an_id for an_id in ids if not an_id >> layout.total_bits] for ids in (kept, changed))
    fill(store, kept, changed)
    scan, clashes, used = store.scan(1), store.clashes(1), store.lanes(layout)
    assert clashes == sorted({*kept} & {*changed})
    assert (scan.kept, scan.changed, scan.clashes) == (len(kept), len(changed), len(clashes))
    assert used == {an_id & lane_mask(layout) for an_id in [*kept, *changed]}
    most = max(Counter(an_id >> layout.timestamp_shift for an_id in clashes).values(), default=0)
    needed = -(-most // layout.sequences)
    lanes = sorted(islice(unused_lanes(layout, used), needed))
    if len(lanes) < needed:
        return
    pairs = list(new_ids(clashes, layout, lanes))
    old, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assert old == clashes
    assert new == sorted(set(new))
    assert not {*new} & {*kept, *changed}
    assert [layout.decode(an_id).tick for an_id in new] == [layout.decode(an_id).tick for an_id in old]
    store.add(1, ((old, new, new) for old, new in pairs))
    store.prove(1, "t.id", matched=False)


@settings(max_examples=25)
@given(st.sets(st.integers(-50, 5000), min_size=1), st.sets(st.integers(-50, 5000), min_size=1))
def test_a_counters_offset_leaves_every_number_in_use_behind(store: IdStore, kept: set[int], changed: set[int]) -> None:
    offset = counter_offset(min(changed), max(kept | changed), 1 << 40)
    new = sorted(number + offset for number in changed)
    assert not {*new} & (kept | changed)
    assert set(str(offset)) <= {"1", "0"}
    fill(store, kept, changed)
    store.add_offset(1, offset)
    assert [pair[2] for pair in store.pairs(1)] == new
    store.prove(1, "t.id", matched=False)


def test_a_narrow_column_gets_the_least_offset() -> None:
    assert counter_offset(1, 9_999, 1 << 31) == 100_000
    assert counter_offset(1, 16_000, (1 << 15) - 1) == 16_000


def test_unused_lanes_are_of_datacenters_in_use() -> None:
    layout = LAYOUTS[0]
    used = [layout.compose(tick=0, datacenter=1, worker=7)]
    first, second = islice(map(layout.decode, unused_lanes(layout, used)), 2)
    assert (first.datacenter, first.worker) == (1, 6)
    assert (second.datacenter, second.worker) == (1, 5)


@pytest.mark.parametrize(
    ("kept", "changed", "pairs", "message"),
    [
        ([1, 2], [2, 3], [], "2 is in both databases"),
        ([1, 2], [2, 3], [(2, 3, 3)], "3 is there twice after the change"),
        ([1, 2], [2, 3], [(2, 1, 1)], "1 is a new id of the plan, and is in use"),
        # a chain: the new id of one is the old id of another
        ([1, 2], [1, 2], [(1, 2, 2), (2, 9, 9)], "2 is a new id of the plan, and is in use"),
        ([1, 2], [1, 2], [(1, 9, 9), (2, 9, 9)], "9 is there twice after the change"),
        ([1, 2], [3], [(2, 9, 9)], "2 is to get a new id, and does not exist"),
        ([1, 2], [1, 2], [(1, 2, 8), (2, 7, 9)], "2 is a temporary id of the plan, and is in use"),
        ([1, 2], [1, 2], [(1, 9, 8), (2, 7, 9)], "9 is a temporary id of the plan, and is in use"),
    ],
)
def test_the_proof_refuses_ids_that_clash(
    store: IdStore, kept: list[int], changed: list[int], pairs: list[tuple[int, int, int]], message: str
) -> None:
    fill(store, kept, changed)
    store.add(1, pairs)
    with pytest.raises(MergeError) as refused:
        store.prove(1, "t.id", matched=False)
    assert message in str(refused.value)
    assert "make a new plan" in str(refused.value)


def test_rows_that_both_have_may_take_ids_of_the_other_in_a_circle(store: IdStore) -> None:
    fill(store, [1, 2, 3], [1, 2, 3])
    store.add(1, [(1, 11, 2), (2, 12, 3), (3, 13, 1)])
    store.prove(1, "t.id", matched=True)
    assert list(store.pairs(1)) == [(1, 11, 2), (2, 12, 3), (3, 13, 1)]


def test_values_are_told_apart_by_the_domains_whose_ids_they_are(store: IdStore) -> None:
    for number, ids in ((1, [1, 2, 3]), (2, [1, 3]), (3, [1, 4])):
        fill(store, [], ids, number)
    assert store.domains_of("changed", [1, 3, 5], [1, 2, 3]) == {1: {1, 3}, 2: {1, 3}, 3: {1}}
    assert store.domains_of("changed", [4, 5], [1, 2]) == {}
