"""Old and new ids of one column: equal or not, sorted or not, from when on; and `migrate proof`."""

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snowredis.cli.exit_codes import ExitCode
from snowredis.core.layout import Layout
from snowredis.core.presets import layouts
from snowredis.errors import ConfigError
from snowredis.merge.proof import IdSet, Proof, Used, common_ids, counter_ids, layout_ids
from tests.core.test_layout import any_layout

EPOCH = 1735689600000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@st.composite
def small_layout(draw: st.DrawFn) -> Layout:
    """Layouts of at most 10 bits whose fields begin anywhere, all of whose ids can be listed."""
    layout = draw(any_layout(10, most=(2, 2, 2, 2)))
    return replace(layout, tick_ms=draw(st.integers(1, 9)), epoch_ms=EPOCH + draw(st.integers(0, 40)))


@st.composite
def ranges_of(draw: st.DrawFn, layout: Layout) -> Used:
    """Ranges of datacenters and workers of a layout; None: all."""

    def part_of(count: int) -> tuple[int, int] | None:
        low = draw(st.integers(0, count - 1))
        return draw(st.none() | st.tuples(st.just(low), st.integers(low, count - 1)))

    return {"datacenter": part_of(layout.datacenters), "worker": part_of(layout.workers)}


def listed(layout: Layout, used: Used, from_ms: int | None, until_ms: int | None) -> set[int]:
    """All ids, made as a generator makes them: a moment, a worker, a number."""
    every = {"datacenter": layout.datacenters, "worker": layout.workers}
    low_high = {name: used[name] or (0, count - 1) for name, count in every.items()}
    datacenters, workers = (range(low, high + 1) for low, high in low_high.values())
    first = layout.epoch_ms if from_ms is None else max(from_ms, layout.epoch_ms)
    last = layout.end_ms - 1 if until_ms is None else min(until_ms, layout.end_ms - 1)
    ticks = {layout.tick_at(time_ms) for time_ms in range(first, last + 1)}
    return {
        layout.compose(tick=tick, datacenter=datacenter, backup=backup, worker=worker, sequence=sequence)
        for tick, datacenter, worker in product(ticks, datacenters, workers)
        for backup, sequence in product(range(layout.namespaces), range(layout.sequences))
    }


@st.composite
def old_ids(draw: st.DrawFn) -> tuple[IdSet, set[int]]:
    if draw(st.booleans()):
        last = draw(st.integers(1, 1100))
        return counter_ids(last), set(range(1, last + 1))
    layout = draw(small_layout())
    moments = st.none() | st.integers(layout.epoch_ms, layout.end_ms - 1)
    from_ms, until_ms = draw(moments), draw(moments)
    if from_ms is not None and until_ms is not None and from_ms > until_ms:
        from_ms, until_ms = until_ms, from_ms
    used = draw(ranges_of(layout))
    return layout_ids(layout, used, from_ms=from_ms, until_ms=until_ms), listed(layout, used, from_ms, until_ms)


# an example lists all ids for up to thousands of moments
@settings(max_examples=50)
@given(old_ids(), small_layout(), st.data())
def test_the_proof_decides_as_the_lists_of_all_ids_do(
    old: tuple[IdSet, set[int]], layout: Layout, data: st.DataObject
) -> None:
    old_set, old_list = old
    start_ms = data.draw(st.integers(layout.epoch_ms, layout.end_ms - 1))
    error_ms = data.draw(st.integers(0, 20))
    used = data.draw(ranges_of(layout))

    def new_from(time_ms: int) -> set[int]:
        return listed(layout, used, time_ms - error_ms, None)

    proof = Proof(old_set, layout, used, start_ms=start_ms, clock_error_ms=error_ms)
    new = new_from(start_ms)
    both = old_list & new
    assert (old_set.lowest, old_set.highest) == (min(old_list), max(old_list))
    assert (proof.new.lowest, proof.new.highest) == (min(new), max(new))
    assert proof.distinct is not bool(both)
    assert proof.common is None or proof.common == (len(both), min(both), max(both))
    assert proof.sorted is (min(new) > max(old_list))
    # the later the start, the fewer and the greater are the new ids: bisected, since each list takes long
    starts = range(start_ms, layout.end_ms + error_ms)
    at = bisect_left(starts, True, key=lambda time_ms: not old_list & new_from(time_ms))
    assert proof.distinct_from_ms == (starts[at] if at < len(starts) else None)
    at = bisect_left(starts, True, key=lambda time_ms: min(new_from(time_ms)) > max(old_list))
    assert proof.sorts_from_ms == (starts[at] if at < len(starts) else None)


@given(old_ids(), small_layout(), st.integers(0, 300))
def test_the_latest_epoch_is_the_last_that_sorts_new_ids_after_old_ones(
    old: tuple[IdSet, set[int]], layout: Layout, later_ms: int
) -> None:
    start_ms = min(layout.epoch_ms + later_ms, layout.end_ms - 1)
    proof = Proof(old[0], layout, start_ms=start_ms)

    def sorts_with(epoch_ms: int) -> bool:
        return Proof(old[0], replace(layout, epoch_ms=epoch_ms), start_ms=start_ms).sorted

    if proof.latest_epoch_ms is not None:
        assert sorts_with(proof.latest_epoch_ms)
        assert proof.latest_epoch_ms == start_ms or not sorts_with(proof.latest_epoch_ms + 1)
    else:
        # an earlier epoch makes greater ids, so the earliest that the layout allows is the last resort
        assert not sorts_with(start_ms - layout.max_tick * layout.tick_ms)


SWITCH_MS = ms("2026-11-22T00:00:00")
OLD = {
    "auto-increment": counter_ids(2**31 - 1),
    **{name: layout_ids(layout, until_ms=SWITCH_MS) for name, layout in layouts.items()},
}


def test_what_a_proof_of_two_presets_says_is_so_of_the_ids_and_moments_that_it_names() -> None:
    usable = [layout for layout in layouts.values() if layout.end_ms > SWITCH_MS]
    for (name, old), layout in product(OLD.items(), usable):
        check_pair(old, layout, Proof(old, layout, start_ms=SWITCH_MS), layouts.get(name))


def check_pair(old: IdSet, layout: Layout, proof: Proof, old_layout: Layout | None) -> None:
    def starts_at(start_ms: int) -> Proof:
        return Proof(old, layout, start_ms=start_ms)

    assert proof.distinct or not proof.sorted
    for witness in (proof.common.lowest, proof.common.highest) if proof.common else ():
        # both sides can make it, as the layouts' own arithmetic says
        assert layout.decode(witness).timestamp_ms + layout.tick_ms > SWITCH_MS
        if old_layout is None:
            assert witness <= 2**31 - 1
        else:
            assert witness >> old_layout.total_bits == 0
            assert old_layout.decode(witness).timestamp_ms <= SWITCH_MS
    if proof.sorts_from_ms is not None:
        assert starts_at(proof.sorts_from_ms).sorted
        assert starts_at(proof.sorts_from_ms).distinct
        assert proof.sorted or not starts_at(proof.sorts_from_ms - 1).sorted
    if proof.distinct_from_ms is not None:
        assert starts_at(proof.distinct_from_ms).distinct
        assert proof.distinct or not starts_at(proof.distinct_from_ms - 1).distinct
    if layout == old_layout:
        # only the tick of the switch can be on both sides
        assert proof.common
        assert proof.common.size == 1 << layout.timestamp_shift


def test_a_new_epoch_for_uid_generator_repeats_its_old_ids() -> None:
    """The question of its users when the 28 bits of seconds ended on 2024-11-20: will old and new collide?"""
    uid = layouts["uid-generator"]
    old = layout_ids(uid)
    ended = uid.end_ms
    assert not Proof(old, replace(uid, epoch_ms=ended), start_ms=ended).distinct
    # one more bit of time, from the workers: ids of 2024 and later are again those of 2020 to 2024
    wider = replace(uid, timestamp_bits=29, worker_bits=21)
    proof = Proof(old, wider, start_ms=ended)
    assert proof.common
    assert wider.decode(proof.common.lowest).timestamp_ms == ended
    assert uid.decode(proof.common.lowest).timestamp_ms == uid.ms_at(2**27)
    assert proof.sorts_from_ms is None
    # its worker ids count up from 1: the upper half, as another datacenter, is unused
    halved = replace(uid, datacenter_bits=1, worker_bits=21, epoch_ms=ended)
    small = layout_ids(uid, {"worker": (0, 70_000)})
    assert Proof(small, halved, {"datacenter": (1, 1)}, start_ms=ended).distinct
    assert not Proof(small, halved, {"datacenter": (0, 0)}, start_ms=ended).distinct


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: counter_ids(2**63), "the greatest old id must be in 1 .. 9223372036854775807"),
        (lambda: layout_ids(Layout(), until_ms=0), "can be made in the given period: it has ids from 2025-01-01"),
        (lambda: layout_ids(Layout(), from_ms=EPOCH + 9, until_ms=EPOCH + 8), "check the dates and the epoch"),
        (lambda: layout_ids(Layout(), {"worker": (0, 1024)}), "worker 0-1024 is not a range within 0-1023"),
        (lambda: layout_ids(Layout(), {"datacenter": (1, 1)}), "datacenter 1-1 is not a range within 0-0"),
        (
            lambda: Proof(counter_ids(9), layouts["uid-generator"], start_ms=SWITCH_MS),
            "can be made in the given period",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert message in str(caught.value)


def test_sets_without_a_common_id_have_none() -> None:
    assert common_ids(counter_ids(9), layout_ids(Layout(), from_ms=SWITCH_MS)) is None
    assert common_ids(counter_ids(9), counter_ids(20)) == (9, 1, 9)


# --- the command --------------------------------------------------------------------------------------


Cli = Callable[..., Any]


def test_a_proof_says_that_counted_ids_never_equal_new_ones(offline: Cli) -> None:
    result = offline("migrate", "proof", "--max", "81234567", "--start", "2026-12-01", code=0)
    assert "never: no new id is an old one" in result.out
    assert "kept: every new id is greater than every old one" in result.out
    assert "to do" not in result.out


def test_a_proof_names_an_id_that_both_sides_make_and_what_to_do(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "twitter", "--start", "2026-12-01"]
    result = offline(*argv, code=ExitCode.FOUND_CLASHES)
    words = " ".join(result.out.split())
    assert "possible: " in words
    assert "made at 2026-11-30T23:59:50.000Z by worker 0" in words
    assert "start at 2041-01-" in words
    spec = words.split("--to '")[1].split("'")[0]
    # what it advises holds
    assert "kept: every" in offline(*argv, "--to", spec).out
    (start,) = re.findall("start at ([^ ,]+)", words)
    assert "kept: every" in offline(*argv[:4], "--until", "2026-12-01", "--start", start).out


def test_datacenters_that_made_no_old_ids_are_free(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "leaf", "--to", "41/1/0/9/12;epoch_ms=1288834974657"]
    assert offline(*argv, "--datacenter", "1").code == ExitCode.FOUND_CLASHES
    assert "not kept: " in offline(*argv, "--datacenter", "1", "--old-worker", "0-511", code=0).out


def test_what_cannot_be_proved_is_refused(offline: Cli) -> None:
    for argv, code, message in (
        (["--from", "auto-increment"], ExitCode.USAGE, "Add --max with SELECT max(id)"),
        (["--from", "twitter", "--max", str(2**62)], ExitCode.BAD_INPUT, "after the switch"),
        (["--max", "1", "--to", "uid-generator"], ExitCode.BAD_INPUT, "can be made in the given period"),
        (["--max", "1", "--datacenter", "x"], ExitCode.USAGE, "'x' is neither a number nor a range"),
        (["--max", "1", "--start", "soon"], ExitCode.USAGE, "is not a valid time"),
        (["--max", "1", "--datacenter", "3"], ExitCode.BAD_INPUT, "3-3 is not a range within 0-0"),
    ):
        assert message in offline("migrate", "proof", *argv, code=code).err
