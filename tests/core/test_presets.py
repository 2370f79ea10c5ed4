"""Presets against ids and dates that their systems published; layouts as text, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from snowredis.core import presets
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts, preset_source, resolve_layout
from snowredis.errors import ConfigError, LayoutError
from tests.core.test_layout import any_layout

NAMES = (
    "default", "twitter", "jd", "jd-seconds", "leaf", "shardingsphere", "uid-generator", "sonyflake",
    "sonyflake-v2", "discord", "instagram", "js-safe", "game", "game-shards",
)  # fmt: skip
CHINA = ZoneInfo("Asia/Shanghai")


# -- the mapping ------------------------------------------------------------------------------------------


def test_the_presets_are_a_read_only_mapping_by_name() -> None:
    assert tuple(layouts) == NAMES
    assert len(layouts) == len(NAMES)
    assert isinstance(layouts, Mapping)
    assert not isinstance(layouts, MutableMapping)
    assert "twitter" in layouts
    assert "myspace" not in layouts
    assert layouts.get("myspace") is None
    assert repr(layouts) == f"<layouts: {', '.join(NAMES)}>"
    with pytest.raises(TypeError):
        layouts["mine"] = Layout()  # type: ignore[index]


def test_a_name_that_is_not_there_is_a_key_error_that_lists_the_names() -> None:
    with pytest.raises(KeyError) as caught:
        layouts["myspace"]
    assert "'myspace'" in caught.value.args[0]
    assert all(name in caught.value.args[0] for name in NAMES)
    with pytest.raises(KeyError):
        preset_source("myspace")


def test_nothing_is_built_at_import_and_nothing_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.programs.unbuilt_presets"],
        cwd=Path(presets.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_preset_is_one_object_whoever_asks_first() -> None:
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: layouts["leaf"], range(50)))
    assert all(layout is built[0] for layout in built)


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_says_where_it_comes_from(name: str) -> None:
    assert preset_source(name).endswith(".")
    assert len(preset_source(name)) > 60


# -- the presets against what is known of their systems ----------------------------------------------------


def test_a_tweet_decodes_to_the_time_that_twitter_shows() -> None:
    parts = layouts["twitter"].decode(1541815603606036480)
    assert parts.time == datetime(2022, 6, 28, 16, 7, 40, 105000, tzinfo=UTC)
    assert parts.datacenter << 5 | parts.worker == 378
    assert parts.sequence == 0


def test_the_jd_articles_example_is_tick_1_machine_1_sequence_1() -> None:
    parts = layouts["jd"].decode(4198401)
    assert (parts.tick, parts.worker, parts.sequence) == (1, 1, 1)
    assert parts.timestamp_ms == 1422720000001
    assert parts.time.astimezone(CHINA).isoformat() == "2015-02-01T00:00:00.001000+08:00"


def test_jd_seconds_has_four_million_machines_with_1024_ids_a_second_for_68_years() -> None:
    layout = layouts["jd-seconds"]
    assert (layout.workers, layout.ids_per_second, layout.epoch_ms) == (2**22, 1024, 1422720000000)
    assert round(layout.lifetime_years) == 68


def test_leaf_has_twitters_epoch_and_one_worker_field_of_ten_bits() -> None:
    assert layouts["leaf"].epoch_ms == layouts["twitter"].epoch_ms == 1288834974657
    assert layouts["leaf"].decode(1541815603606036480).worker == 378


def test_shardingsphere_counts_from_midnight_in_china_and_ends_in_2086() -> None:
    layout = layouts["shardingsphere"]
    assert layout.ms_at(0) == datetime(2016, 11, 1, tzinfo=CHINA).timestamp() * 1000
    assert layout.end.year == 2086
    assert (layout.workers, layout.sequences) == (1024, 4096)
    assert str(int(datetime(2016, 11, 1, tzinfo=UTC).timestamp() * 1000)) in preset_source("shardingsphere")


def test_uid_generator_ends_at_the_second_that_its_own_documentation_gives() -> None:
    layout = layouts["uid-generator"]
    assert layout.end.astimezone(CHINA) == datetime(2024, 11, 20, 21, 24, 16, tzinfo=CHINA)
    assert layout.decode(layout.compose(tick=0)).time.astimezone(CHINA) == datetime(2016, 5, 20, tzinfo=CHINA)
    assert (layout.workers, layout.sequences, layout.tick_ms) == (2**22, 8192, 1000)


def test_sonyflake_keeps_the_machine_in_the_lowest_16_bits_and_lasts_174_years() -> None:
    layout = layouts["sonyflake"]
    parts = layout.decode(1234 << 24 | 200 << 16 | 0xBEEF)
    assert (parts.tick, parts.sequence, parts.worker) == (1234, 200, 0xBEEF)
    assert parts.time == datetime(2014, 9, 1, 0, 0, 12, 340000, tzinfo=UTC)
    assert round(layout.lifetime_years) == 174
    newer = layouts["sonyflake-v2"].decode(1234 << 24 | 200 << 16 | 0xBEEF)
    assert (newer.tick, newer.sequence, newer.worker) == (1234, 200, 0xBEEF)
    assert newer.time == datetime(2025, 1, 1, 0, 0, 12, 340000, tzinfo=UTC)


def test_a_discord_id_decodes_to_the_time_that_its_users_know() -> None:
    parts = layouts["discord"].decode(105484726235607040)
    assert parts.time == datetime(2015, 10, 19, 1, 58, 38, 546000, tzinfo=UTC)
    # 175928847299117063 is the example of Discord's API reference
    parts = layouts["discord"].decode(175928847299117063)
    assert parts.time == datetime(2016, 4, 30, 11, 18, 25, 796000, tzinfo=UTC)
    assert (parts.datacenter, parts.worker, parts.sequence) == (1, 0, 7)
    assert f"{layouts['discord'].end:%Y-%m-%d}" in preset_source("discord")


def test_an_instagram_id_decodes_to_the_second_that_instagram_shows() -> None:
    layout = layouts["instagram"]
    assert layout.decode(2384288897814875714).time.replace(microsecond=0) == datetime(
        2020, 8, 26, 13, 43, 27, tzinfo=UTC
    )
    # the example of Instagram's article: 1387263000 ms, shard 31341 % 2000, sequence 5001 % 1024
    parts = layout.decode(1387263000 << (64 - 41) | 1341 << (64 - 41 - 13) | 5001 % 1024)
    assert (parts.tick, parts.worker, parts.sequence) == (1387263000, 1341, 905)
    assert f"{layout.end:%Y-%m-%d}" in preset_source("instagram")


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


def test_game_has_the_articles_20_bits_of_server_and_a_burst_of_65536_for_42_years() -> None:
    layout = layouts["game"]
    assert (layout.workers, layout.sequences, layout.tick_ms) == (2**20, 65_536, 10_000)
    assert round(layout.lifetime_years, 1) == 42.5
    assert layout.end.year == 2067


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
        ("41/0/2/10/10/0", "not 6"),
        ("41/0/2/x/10", "'x' is not a number"),
        ("41/0/2//10", "'' is not a number"),
        ("41/0/2/-1/10", "'-1' is not a number"),
        ("41/0/2/1_0/10", "'1_0' is not a number"),
        ("41/0/2/\u0661/10", "is not a number"),
        ("41/0/2/10/10;tick_ms=99999999999999999999", "is not a number of at most 19 digits"),
        ("41/0/2/10/10;tick_ms=", "'' is not a number"),
        ("41/0/2/10/10;tick_ms", "'tick_ms' is none of tick_ms=, epoch_ms=, worker_last="),
        ("41/0/2/10/10;ticks=1", "'ticks=1' is none of"),
        ("41/0/2/10/10;", "'' is none of"),
        ("41/0/2/10/10;tick_ms=1;tick_ms=1", "tick_ms is given twice"),
        ("41/0/2/10/10;worker_last=2", "worker_last is 2, not 0 or 1"),
        ("41/0/2/10/10;worker_last=True", "'True' is not a number"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_with_the_reason_and_an_example(spec: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(spec)
    assert repr(spec) in str(caught.value)
    assert why in str(caught.value)
    assert "valid one: 41/0/2/10/10;tick_ms=1" in str(caught.value)


def test_a_spec_whose_bits_do_not_fit_is_refused_by_the_layout_itself() -> None:
    with pytest.raises(LayoutError, match=r"73 bits do not fit in 63, and 37 bits of 1 ms last 4\.4 years"):
        resolve_layout("37/0/0/20/16")


@pytest.mark.parametrize(
    ("wrong", "near"), [("TWITTER", "twitter"), ("sonyflak", "sonyflake"), ("jdseconds", "jd-seconds")]
)
def test_an_unknown_name_is_refused_with_the_nearest_and_all_names(wrong: Any, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(wrong)
    assert f"unknown layout {wrong!r}" in str(caught.value)
    assert f"Did you mean {near!r}?" in str(caught.value)
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("wrong", ["", "zzzzzz"])
def test_a_name_like_no_other_is_refused_without_a_guess(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_layout(wrong)
    assert "Did you mean" not in str(caught.value)
    assert "The presets are default, twitter" in str(caught.value)


@pytest.mark.parametrize("wrong", [41, b"twitter", {"worker_bits": 1}])
def test_a_setting_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"not {type(wrong).__name__}"):
        resolve_layout(wrong)
