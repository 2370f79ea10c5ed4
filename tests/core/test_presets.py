"""Presets against ids and dates that their systems published; layouts as text, and what is refused."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts, preset_source, resolve_layout
from snowredis.errors import ConfigError
from tests.core.test_layout import any_layout

NAMES = (
    "default", "twitter", "jd", "jd-seconds", "leaf", "shardingsphere", "uid-generator", "sonyflake",
    "sonyflake-v2", "discord", "instagram", "js-safe", "game", "game-shards",
)  # fmt: skip
CHINA = ZoneInfo("Asia/Shanghai")
SONYFLAKE = 1234 << 24 | 200 << 16 | 0xBEEF
# the example of Instagram's article: 1387263000 ms, shard 31341 % 2000, sequence 5001 % 1024
INSTAGRAM = 1387263000 << 64 - 41 | 1341 << 64 - 41 - 13 | 5001 % 1024


# -- the mapping ------------------------------------------------------------------------------------------


def test_the_presets_are_a_read_only_mapping_by_name() -> None:
    assert tuple(layouts) == NAMES
    with pytest.raises(TypeError):
        layouts["mine"] = Layout()  # type: ignore[index]


# -- the presets against what is known of their systems ----------------------------------------------------


# an id, the time and the fields that its system shows for it
PUBLISHED = [
    ("twitter", 1541815603606036480, datetime(2022, 6, 28, 16, 7, 40, 105000, tzinfo=UTC), (11, 26, 0)),
    # one worker field of ten bits
    ("leaf", 1541815603606036480, datetime(2022, 6, 28, 16, 7, 40, 105000, tzinfo=UTC), (0, 378, 0)),
    # the example of JD's article: tick 1
    ("jd", 4198401, datetime(2015, 2, 1, 0, 0, 0, 1000, tzinfo=CHINA), (0, 1, 1)),
    # ticks of 10 ms; the machine is in the lowest 16 bits
    ("sonyflake", SONYFLAKE, datetime(2014, 9, 1, 0, 0, 12, 340000, tzinfo=UTC), (0, 0xBEEF, 200)),
    ("sonyflake-v2", SONYFLAKE, datetime(2025, 1, 1, 0, 0, 12, 340000, tzinfo=UTC), (0, 0xBEEF, 200)),
    ("discord", 105484726235607040, datetime(2015, 10, 19, 1, 58, 38, 546000, tzinfo=UTC), (0, 11, 0)),
    # the example of Discord's API reference
    ("discord", 175928847299117063, datetime(2016, 4, 30, 11, 18, 25, 796000, tzinfo=UTC), (1, 0, 7)),
    ("uid-generator", 0, datetime(2016, 5, 20, tzinfo=CHINA), (0, 0, 0)),
    ("shardingsphere", 0, datetime(2016, 11, 1, tzinfo=CHINA), (0, 0, 0)),
    ("instagram", INSTAGRAM, datetime(2011, 9, 9, 22, 28, 4, 721000, tzinfo=UTC), (0, 1341, 905)),
]


@pytest.mark.parametrize(("name", "an_id", "time", "fields"), PUBLISHED)
def test_an_id_of_another_system_is_decoded_as_that_system_shows_it(
    name: str, an_id: int, time: datetime, fields: tuple[int, int, int]
) -> None:
    parts = layouts[name].decode(an_id)
    assert (parts.datacenter, parts.worker, parts.sequence) == fields
    assert parts.time == time


def test_the_source_of_a_preset_names_the_day_of_its_end() -> None:
    for name in ("discord", "instagram"):
        assert f"{layouts[name].end:%Y-%m-%d}" in preset_source(name)


def test_js_safe_ids_stay_below_2_to_the_53_for_decades_with_64_workers_at_least() -> None:
    layout = layouts["js-safe"]
    last = layout.compose(
        tick=layout.max_tick, backup=layout.namespaces - 1, worker=layout.workers - 1, sequence=layout.sequences - 1
    )
    assert last == 2**53 - 1
    assert float(last) == last
    assert layout.workers >= 64
    assert layout.namespaces >= 2
    assert layout.lifetime_years > 40


# -- what a setting may say -------------------------------------------------------------------------------


def test_a_setting_is_a_layout_a_name_a_spec_or_nothing() -> None:
    mine = Layout(worker_bits=9)
    assert resolve_layout(mine) is mine
    assert resolve_layout(None) is layouts["default"]
    assert resolve_layout(None) == Layout()
    assert resolve_layout("twitter") is layouts["twitter"]
    assert resolve_layout("41/0/2/9/10") == mine


@given(any_layout())
def test_the_spec_of_a_layout_reads_back_as_that_layout(layout: Layout) -> None:
    assert resolve_layout(layout_spec(layout)) == layout


def test_the_spec_is_the_signature_that_pools_store_and_never_changes() -> None:
    assert layout_spec(Layout()) == "41/0/2/10/10;tick_ms=1;epoch_ms=1735689600000;worker_last=0"
    assert layout_spec(layouts["sonyflake"]) == "39/0/0/16/8;tick_ms=10;epoch_ms=1409529600000;worker_last=1"


def test_the_options_of_a_spec_may_be_left_out_stand_in_any_order_and_be_spaced() -> None:
    sonyflake = layouts["sonyflake"]
    assert resolve_layout("39/0/0/16/8;worker_last=1;epoch_ms=1409529600000;tick_ms=10") == sonyflake
    assert resolve_layout(" 39/0/0/16/8; worker_last = 1;epoch_ms=1409529600000 ;tick_ms=10 ") == sonyflake
    assert resolve_layout("41/0/2/10/10;worker_last=0") == Layout()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("41/0/2/10", "it must have 5 widths (timestamp/datacenter/backup/worker/sequence), not 4"),
        ("41/0/2/x/10", "'x' is not a number"),
        ("41/0/2/1_0/10", "'1_0' is not a number"),
        ("41/0/2/\u0661/10", "is not a number"),
        ("41/0/2/10/10;tick_ms=99999999999999999999", "is not a number of at most 19 digits"),
        ("41/0/2/10/10;tick_ms", "'tick_ms' is none of tick_ms=, epoch_ms=, worker_last="),
        ("41/0/2/10/10;ticks=1", "'ticks=1' is none of"),
        ("41/0/2/10/10;", "'' is none of"),
        ("41/0/2/10/10;tick_ms=1;tick_ms=1", "tick_ms is given twice"),
        ("41/0/2/10/10;worker_last=2", "worker_last is 2, not 0 or 1"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_with_the_reason_and_an_example(spec: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(spec)
    assert repr(spec) in str(caught.value)
    assert why in str(caught.value)
    assert "valid one: 41/0/2/10/10;tick_ms=1" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "guess"),
    [
        ("TWITTER", "Did you mean 'twitter'? "),
        ("sonyflak", "Did you mean 'sonyflake'? "),
        ("jdseconds", "Did you mean 'jd-seconds'? "),
        ("", ""),
        ("zzzzzz", ""),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_if_any_is_near_and_all_names(wrong: Any, guess: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(wrong)
    assert f"unknown layout {wrong!r}. {guess}The presets are {', '.join(NAMES)}" in str(caught.value)


@pytest.mark.parametrize("wrong", [41, b"twitter", {"worker_bits": 1}])
def test_a_setting_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"not {type(wrong).__name__}"):
        resolve_layout(wrong)
