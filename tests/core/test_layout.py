"""Layout: what is refused and why, the arithmetic, composing and decoding, time windows, the picture."""

import copy
import dataclasses
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snowredis.core import layout as layout_module
from snowredis.core.layout import Layout, Parts
from snowredis.core.presets import layouts
from snowredis.core.values import MAX_ID, check_id, utc_from_ms
from snowredis.errors import InvalidId, LayoutError

EPOCH = 1735689600000
BITS = ("timestamp_bits", "datacenter_bits", "backup_bits", "worker_bits", "sequence_bits")
# every id of it can be listed: 2**8; coarse ticks, and an epoch that is no whole second
TINY = Layout(
    timestamp_bits=4, datacenter_bits=1, backup_bits=1, worker_bits=1, sequence_bits=1, tick_ms=700, epoch_ms=EPOCH + 1
)


@st.composite
def any_layout(draw: st.DrawFn, bits: int = 63, *, most: Sequence[int] = (12, 6, 22, 22)) -> Layout:
    """Any layout that there can be, the narrow ones and those without some fields too."""
    datacenter, backup, worker, sequence = (draw(st.integers(0, width)) for width in most)
    return Layout(
        timestamp_bits=draw(st.integers(1, bits - backup - worker - datacenter - sequence)),
        datacenter_bits=datacenter,
        backup_bits=backup,
        worker_bits=worker,
        sequence_bits=sequence,
        tick_ms=draw(st.sampled_from([1, 7, 10, 1000, 60_000]) | st.integers(1, 60_000)),
        epoch_ms=draw(st.sampled_from([0, EPOCH, 1288834974657]) | st.integers(0, EPOCH)),
        worker_last=draw(st.booleans()),
    )


@st.composite
def layout_and_fields(draw: st.DrawFn, count: int = 1) -> Any:
    layout = draw(any_layout())
    values = st.fixed_dictionaries(
        {
            "tick": st.integers(0, layout.max_tick),
            "datacenter": st.integers(0, layout.datacenters - 1),
            "backup": st.integers(0, layout.namespaces - 1),
            "worker": st.integers(0, layout.workers - 1),
            "sequence": st.integers(0, layout.sequences - 1),
        }
    )
    return layout, *(draw(values) for _ in range(count))


def refusal(**fields: Any) -> str:
    with pytest.raises(LayoutError) as caught:
        Layout(**fields)
    return str(caught.value)


# -- the constructor --------------------------------------------------------------------------------------


def test_the_default_is_1024_workers_with_1024_ids_a_ms_and_four_namespaces_until_2094() -> None:
    layout = Layout()
    assert (layout.workers, layout.sequences, layout.namespaces, layout.datacenters) == (1024, 1024, 4, 1)
    assert layout.total_bits == 63
    assert layout.max_tick == 2**41 - 1
    assert layout.ids_per_second == 1_024_000
    assert layout.end_ms == EPOCH + 2**41
    assert layout.end == datetime(2094, 9, 7, 15, 47, 35, 552000, tzinfo=UTC)
    assert round(layout.lifetime_years, 1) == 69.7


def test_layouts_are_equal_by_value_and_stay_so_through_pickle_and_copy() -> None:
    layout = layouts["sonyflake"]
    copies = [
        pickle.loads(pickle.dumps(layout)),
        copy.deepcopy(layout),
        dataclasses.replace(layout),
        Layout(timestamp_bits=39, backup_bits=0, worker_bits=16, sequence_bits=8, tick_ms=10,
               epoch_ms=1409529600000, worker_last=True),
    ]  # fmt: skip
    for copied in copies:
        assert copied == layout
        assert hash(copied) == hash(layout)
        assert copied.decode(2**62 + 12345) == layout.decode(2**62 + 12345)
    assert dataclasses.replace(layout, worker_last=False) != layout
    assert eval(repr(layout), {"Layout": Layout}) == layout


def test_a_layout_cannot_be_changed_and_takes_keywords_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Layout().worker_bits = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Layout(41)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [*BITS, "tick_ms", "epoch_ms"])
@pytest.mark.parametrize("value", [True, 1.0, "10", None])
def test_a_value_that_is_no_int_is_refused_by_name_and_type(name: str, value: Any) -> None:
    message = refusal(**{name: value})
    assert f"{name} must be an int, not {type(value).__name__} {value!r}" in message
    assert "No layout was made" in message


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_worker_last_must_be_a_bool(value: Any) -> None:
    assert f"worker_last must be True or False, not {value!r}" in refusal(worker_last=value)


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"timestamp_bits": -1}, "timestamp_bits -1 is out of range 1 .. 63: ids without a timestamp"),
        ({"timestamp_bits": 0}, "timestamp_bits 0 is out of range 1 .. 63: ids without a timestamp"),
        ({"datacenter_bits": -1}, "datacenter_bits -1 is out of range 0 .. 63: a field cannot"),
        ({"backup_bits": -1}, "backup_bits -1 is out of range 0 .. 6"),
        ({"backup_bits": 7, "sequence_bits": 0}, "backup_bits 7 is out of range 0 .. 6: there are at most 64"),
        ({"worker_bits": -1}, "worker_bits -1 is out of range 0 .. 22"),
        ({"worker_bits": 23, "timestamp_bits": 28}, "worker_bits 23 is out of range 0 .. 22: a pool has at most"),
        ({"sequence_bits": -10**50}, "sequence_bits <167-bit int> is out of range 0 .. 63"),
        ({"tick_ms": 0}, "tick_ms 0 is out of range 1 .. 60000: a tick lasts"),
        ({"tick_ms": -5}, "tick_ms -5 is out of range"),
        ({"tick_ms": 60_001}, "tick_ms 60001 is out of range"),
        # a bad tick is said first: without it there is no lifetime to tell
        ({"tick_ms": 10**400, "timestamp_bits": 64}, "tick_ms <1329-bit int> is out of range"),
        # a negative width must not make room for another one
        ({"timestamp_bits": 60, "sequence_bits": -20}, "sequence_bits -20 is out of range"),
        ({"epoch_ms": -1}, "epoch_ms -1 is before 1970"),
    ],
)  # fmt: skip
def test_a_width_a_tick_or_an_epoch_out_of_range_is_refused_with_the_range(fields: dict[str, Any], facts: str) -> None:
    message = refusal(**fields)
    assert facts in message
    assert "No layout was made" in message


def test_an_epoch_in_the_future_is_refused_with_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = layout_module.WRITTEN_MS + 86_400_000
    monkeypatch.setattr(layout_module, "time_ns", lambda: now_ms * 1_000_000)
    assert Layout(epoch_ms=now_ms).epoch_ms == now_ms
    message = refusal(epoch_ms=now_ms + 1)
    assert f"epoch_ms {now_ms + 1} is in the future" in message
    assert f"clock shows {now_ms} (2026-11-02T00:00:00Z)" in message
    assert "in the future" in refusal(epoch_ms=EPOCH * 1_000_000)  # ns for ms


def test_no_epoch_is_in_the_future_for_a_clock_that_a_test_has_frozen_in_the_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout_module, "time_ns", lambda: 1_577_836_800_000 * 1_000_000)
    assert Layout().epoch_ms == EPOCH
    assert "in the future" in refusal(epoch_ms=layout_module.WRITTEN_MS + 1)


def test_the_game_articles_layout_is_refused_with_the_sum_the_lifetime_and_a_way_out() -> None:
    message = refusal(timestamp_bits=37, backup_bits=0, worker_bits=20, sequence_bits=16)
    assert "37 + 0 + 0 + 20 + 16 = 73 bits do not fit in 63" in message
    assert "37 bits of 1 ms last 4.4 years" in message
    assert "remove 10 bits" in message
    # the preset is named only where many workers are wanted
    assert "'game'" in message
    assert "'game'" not in refusal(worker_bits=15, sequence_bits=16)


@pytest.mark.parametrize(
    ("fields", "lasting"),
    [
        ({"timestamp_bits": 10, "sequence_bits": 50}, "10 bits of 1 ms last 1.0 s"),
        ({"timestamp_bits": 1, "sequence_bits": 60}, "1 bit of 1 ms last 0.0 s"),
        ({"timestamp_bits": 28, "sequence_bits": 50}, "28 bits of 1 ms last 3.1 days"),
        ({"timestamp_bits": 28, "sequence_bits": 50, "tick_ms": 1000}, "28 bits of 1000 ms last 8.5 years"),
        ({"timestamp_bits": 64}, "64 bits of 1 ms last over 292,271,023.0 years"),
        ({"timestamp_bits": 10**9}, "1000000000 bits of 1 ms last over 292,271,023.0 years"),
        ({"timestamp_bits": 10**5000}, "<16610-bit int> bits of 1 ms last over 292,271,023.0 years"),
        # wider than any field may be, but the sum has more to say
        ({"worker_bits": 23}, "41 + 0 + 2 + 23 + 10 = 76 bits do not fit in 63"),
        ({"backup_bits": 7}, "41 + 0 + 7 + 10 + 10 = 68 bits do not fit in 63"),
    ],
)
def test_a_sum_over_63_always_says_the_sum_and_how_long_the_timestamp_lasts(
    fields: dict[str, Any], lasting: str
) -> None:
    message = refusal(**fields)
    assert lasting in message
    assert "do not fit in 63" in message
    assert " last " in message


# -- ticks and times --------------------------------------------------------------------------------------


@given(any_layout(), st.integers(-(10**14), 10**14))
def test_a_tick_runs_from_its_own_ms_to_the_next_ticks(layout: Layout, time_ms: int) -> None:
    tick = layout.tick_at(time_ms)
    assert layout.ms_at(tick) <= time_ms < layout.ms_at(tick + 1)
    assert layout.tick_at(layout.ms_at(tick)) == tick
    first = layout.first_tick_from(time_ms)
    assert layout.ms_at(first - 1) < time_ms <= layout.ms_at(first)


def test_times_past_the_year_9999_are_refused_and_an_end_there_is_none() -> None:
    layout = Layout(timestamp_bits=48, backup_bits=0, sequence_bits=5)
    assert layout.end is None
    assert layout.decode(2**62).time.year == 6484
    parts = layout.decode(layout.compose(tick=layout.max_tick))
    assert parts.timestamp_ms == layout.end_ms - 1
    with pytest.raises(LayoutError, match=rf"{parts.timestamp_ms} ms .* past the year 9999.*Use timestamp_ms"):
        _ = parts.time
    with pytest.raises(LayoutError):
        utc_from_ms(253402300800000)
    assert utc_from_ms(253402300799999) == datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)


# -- composing and decoding -------------------------------------------------------------------------------


@given(layout_and_fields())
@example((Layout(), {"tick": 2**41 - 1, "datacenter": 0, "backup": 3, "worker": 1023, "sequence": 1023}))
def test_decode_gives_back_what_compose_was_given(case: Any) -> None:
    layout, fields = case
    an_id = layout.compose(**fields)
    assert 0 <= an_id < 1 << layout.total_bits <= 1 << 63
    parts = layout.decode(an_id)
    assert parts == Parts(timestamp_ms=layout.ms_at(fields["tick"]), **fields)


@given(layout_and_fields(count=2))
def test_ids_are_ordered_by_tick_then_by_the_fields_from_the_top(case: Any) -> None:
    layout, one, two = case
    low = ("sequence", "worker") if layout.worker_last else ("worker", "sequence")
    order = ("tick", "datacenter", "backup", *low)
    ranks = [tuple(fields[name] for name in order) for fields in (one, two)]
    assert (layout.compose(**one) < layout.compose(**two)) == (ranks[0] < ranks[1])


@pytest.mark.parametrize(
    ("name", "most"), [("tick", 2**40 - 1), ("datacenter", 7), ("backup", 1), ("worker", 511), ("sequence", 1023)]
)
@pytest.mark.parametrize("how", ["one too many", "negative", "far too many"])
def test_a_field_out_of_range_is_refused_by_name_value_and_range_never_masked(name: str, most: int, how: str) -> None:
    layout = Layout(timestamp_bits=40, datacenter_bits=3, backup_bits=1, worker_bits=9)
    value = {"one too many": most + 1, "negative": -1, "far too many": 10**5000}[how]
    fields = {"tick": 0, name: most}
    assert getattr(layout.decode(layout.compose(**fields)), name) == most
    fields[name] = value
    with pytest.raises(LayoutError) as caught:
        layout.compose(**fields)
    said = "<16610-bit int>" if how == "far too many" else str(value)
    assert f"{name} {said} is out of range 0 .. {most}" in str(caught.value)
    assert str(layout) in str(caught.value)
    assert "No id was made" in str(caught.value)


def test_a_field_without_bits_takes_zero_only() -> None:
    assert Layout().compose(tick=1, datacenter=0) == 1 << 22
    with pytest.raises(LayoutError, match=r"datacenter 1 is out of range 0 \.\. 0: its field has 0 bits"):
        Layout().compose(tick=1, datacenter=1)


@pytest.mark.parametrize("name", ["tick", "datacenter", "backup", "worker", "sequence"])
@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_field_that_is_no_int_is_refused(name: str, value: Any) -> None:
    with pytest.raises(LayoutError, match=f"{name} must be an int, not {type(value).__name__}"):
        Layout().compose(**{"tick": 0, name: value})


def test_subclasses_of_int_are_ints() -> None:
    shard = IntEnum("shard", {"EU": 17})
    assert Layout().decode(Layout().compose(tick=1, worker=shard.EU)).worker == 17


@pytest.mark.parametrize("value", [True, 1.0, "17", None, b"1"])
def test_decode_refuses_what_is_no_int(value: Any) -> None:
    with pytest.raises(InvalidId, match=f"an id must be an int, not {type(value).__name__}"):
        Layout().decode(value)


@pytest.mark.parametrize("value", [-1, 2**63, pytest.param(10**5000, id="huge")])
def test_decode_refuses_what_is_out_of_range(value: Any) -> None:
    with pytest.raises(InvalidId, match=r"is not a valid id: ids are in 0 \.\. 9223372036854775807"):
        Layout().decode(value)
    assert check_id(MAX_ID) == MAX_ID


def test_decode_refuses_bits_above_a_narrow_layout() -> None:
    layout = layouts["js-safe"]
    assert layout.decode(2**53 - 1).sequence == 255
    with pytest.raises(InvalidId) as caught:
        layout.decode(2**53)
    assert f"{2**53} has 54 bits, but the layout {layout} has only 53" in str(caught.value)


# -- time windows -----------------------------------------------------------------------------------------


@given(st.integers(-1500, 13_000), st.integers(0, 13_000))
def test_a_range_holds_exactly_the_ids_whose_time_is_in_the_window(start: int, length: int) -> None:
    start_ms, end_ms = EPOCH + start, EPOCH + start + length
    low, high = TINY.id_range(start_ms, end_ms)
    within = [an_id for an_id in range(256) if start_ms <= TINY.decode(an_id).timestamp_ms < end_ms]
    assert within == list(range(low, high))


@given(st.integers(-2_000_000, 13_000_000), st.integers(0, 3000))
def test_datetimes_cut_with_microseconds_in_any_time_zone(start_us: int, length_us: int) -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    start = datetime(2025, 1, 1, 5, 45, tzinfo=zone) + timedelta(microseconds=start_us)
    end = start + timedelta(microseconds=length_us)
    low, high = TINY.id_range(start, end)
    within = [an_id for an_id in range(256) if start <= TINY.decode(an_id).time < end]
    assert within == list(range(low, high))


def test_a_window_is_cut_at_the_epoch_and_at_the_end_of_the_layout() -> None:
    layout = Layout()
    assert layout.id_range(0, EPOCH) == (0, 0)
    assert layout.id_range(-(10**30), 10**30) == (0, 2**63 - 1)
    assert layout.id_range(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)) == (0, 2**63 - 1)
    assert layout.id_range(layout.end_ms, 10**30) == (2**63 - 1, 2**63 - 1)
    assert layout.id_range(EPOCH + 1, EPOCH + 1) == (2**22, 2**22)


def test_a_window_without_a_time_zone_or_of_another_type_or_back_to_front_is_refused() -> None:
    aware, naive = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)
    with pytest.raises(LayoutError, match=r"start 2026-01-01T00:00:00 has no time zone. Add one"):
        Layout().id_range(naive, aware)
    with pytest.raises(LayoutError, match=r"end 2026-01-01T00:00:00 has no time zone"):
        Layout().id_range(aware, naive)
    for other in (True, 1.5, "2026-01-01", None):
        with pytest.raises(LayoutError, match=f"end, if no aware datetime, must be an int, not {type(other).__name__}"):
            Layout().id_range(aware, other)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match=r"start 2 is after end 1"):
        Layout().id_range(2, 1)
    with pytest.raises(LayoutError, match="is after end"):  # within one ms
        Layout().id_range(aware + timedelta(microseconds=2), aware + timedelta(microseconds=1))


# -- what people read -------------------------------------------------------------------------------------


def test_the_signature_says_widths_tick_epoch_and_order() -> None:
    assert str(Layout()) == "41/0/2/10/10 tick 1 ms epoch 2025-01-01T00:00:00Z"
    assert str(layouts["twitter"]) == "41/5/0/5/12 tick 1 ms epoch 2010-11-04T01:42:54.657Z"
    assert str(Layout(epoch_ms=EPOCH + 700)) == "41/0/2/10/10 tick 1 ms epoch 2025-01-01T00:00:00.700Z"
    assert str(layouts["sonyflake"]) == "39/0/0/16/8 tick 10 ms epoch 2014-09-01T00:00:00Z worker-last"


@given(any_layout(), any_layout(), st.sampled_from(["epoch_ms", "tick_ms", "worker_last", "none"]))
def test_signatures_are_the_same_only_for_the_same_layout(one: Layout, two: Layout, differs: str) -> None:
    if differs != "none":
        changed: dict[str, Any] = {"epoch_ms": one.epoch_ms + 1, "tick_ms": one.tick_ms % 60_000 + 1}
        two = dataclasses.replace(one, **{differs: changed.get(differs, not one.worker_last)})
    assert (str(one) == str(two)) == (one == two)


def test_the_description_draws_the_bits_and_says_how_far_they_go() -> None:
    assert Layout().describe().splitlines() == [
        "41/0/2/10/10 tick 1 ms epoch 2025-01-01T00:00:00Z",
        "+----------+-----------+--------+---------+----------+",
        "| always 0 | timestamp | backup | worker  | sequence |",
        "| 1 bit    | 41 bits   | 2 bits | 10 bits | 10 bits  |",
        "| 63       | 62-22     | 21-20  | 19-10   | 9-0      |",
        "+----------+-----------+--------+---------+----------+",
        "tick         1 ms",
        "epoch        2025-01-01T00:00:00Z",
        "end          2094-09-07T15:47:35.552Z, 69.7 years after the epoch",
        "datacenters  1",
        "namespaces   4",
        "workers      1,024",
        "ids          1,024,000 per second and worker, 1,024 at once per tick",
    ]


@pytest.mark.parametrize("name", layouts)
def test_every_preset_can_be_described(name: str) -> None:
    layout = layouts[name]
    text = layout.describe()
    picture = text.splitlines()[1:6]
    assert len({len(line) for line in picture}) == 1
    for field, bits in layout.fields:
        assert (field in picture[1]) == (bits > 0)
    assert f"{layout.workers:,}" in text
    assert f"{layout.end.year}-" in text


@pytest.mark.parametrize("name", ["default", "twitter", "sonyflake", "jd-seconds"])
def test_fields_of_an_array_of_ids_follow_from_the_shifts(name: str) -> None:
    """The docstring of decode() says how."""
    numpy = pytest.importorskip("numpy")
    layout = layouts[name]
    made = [layout.compose(tick=tick, worker=tick % 7, sequence=tick % 5) for tick in range(1, 1000, 37)]
    ids = numpy.array(made)
    times_ms = (ids >> layout.timestamp_shift) * layout.tick_ms + layout.epoch_ms
    workers = ids >> layout.worker_shift & layout.workers - 1
    parts = [layout.decode(an_id) for an_id in made]
    assert times_ms.tolist() == [each.timestamp_ms for each in parts]
    assert workers.tolist() == [each.worker for each in parts]
