"""DatedGenerator on a real redis-server, whose clock is stepped by a preloaded library."""

import random
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError
from snowredis.numbers import DatedGenerator, NumbersClosed, NumbersExhausted, create_tag, open_tag
from snowredis.numbers.protocol import OpenRequest, SettlingTag
from tests.numbers.conftest import Stage
from tests.support.servers import PROGRAM

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")


def test_numbers_start_again_each_period_of_the_zone(stage: Stage) -> None:
    ids = stage.generator(format="INV-{date:%Y%m%d}-{number:06}", zone="Europe/Berlin")
    assert ids.next_ids(2) == ["INV-20261122-000001", "INV-20261122-000002"]
    # midnight in Berlin
    stage.set("2026-11-22T22:59:59")
    assert ids.next_id() == "INV-20261122-000003"
    stage.set("2026-11-22T23:00:00")
    assert [ids.next_id(), next(ids)] == ["INV-20261123-000001", "INV-20261123-000002"]
    for period, first, later in [
        ("hour", "2026112223-000001", "2026112300-000001"),
        ("month", "202611-000001", "202612-000001"),
        ("year", "2026-000001", "2027-000001"),
    ]:
        stage.set("2026-11-22T23:10")
        ids = stage.generator(period, period=period)
        assert ids.next_id() == first
        stage.set({"hour": "2026-11-23T00:00", "month": "2026-12-01T00:00", "year": "2027-01-01T00:00"}[period])
        assert ids.next_id() == later


def test_an_hour_that_comes_twice_repeats_no_number(stage: Stage) -> None:
    ids = stage.generator(period="hour", zone="Europe/Berlin")
    made = []
    for at in ("2026-10-24T23:59:59", "2026-10-25T00:00", "2026-10-25T00:59", "2026-10-25T01:00", "2026-10-25T02:00"):
        stage.set(at)
        made.append(ids.next_id())
    assert made == [
        "2026102501-000001",
        "2026102502-000001",
        "2026102502-000002",
        "2026102502-000003",
        "2026102503-000001",
    ]


def test_the_highest_number_of_a_period_is_the_last_and_a_batch_beyond_it_takes_nothing(stage: Stage) -> None:
    ids = stage.generator(format="{date:%Y%m%d}-{number:01}")
    assert ids.next_id() == "20261122-1"
    with pytest.raises(NumbersExhausted, match="has only 8 numbers left of the period 2026-11-22, up to its maximum 9"):
        ids.next_ids(9)
    assert ids.next_ids(8)[-1] == "20261122-9"
    with pytest.raises(NumbersExhausted, match=r"no number left of the period .* its maximum 9\. No number was made"):
        ids.next_id()
    stage.set("2026-11-23T00:00")
    assert ids.next_id() == "20261123-1"


# --- when Redis forgets -------------------------------------------------------------------------------


def test_after_a_wipe_numbers_stop_until_the_next_day(stage: Stage) -> None:
    ids, others = stage.generator(), stage.generator()
    made = [ids.next_id(), *others.next_ids(5), ids.next_id()]
    stage.server.client().flushall()
    for each in (others, ids):
        with pytest.raises(NumbersClosed) as raised:
            each.next_id()
    # at noon
    assert 11.9 * 3_600_000 < raised.value.wait_ms <= 12 * 3_600_000
    # what a process saw is not handed out again, and nobody may say that the tag is new
    assert raised.value.next_number == 8
    with pytest.raises(ConfigError, match="is not new: it exists, or processes saw higher numbers"):
        create_tag(stage.server.url, "orders", period="day")
    stage.set("2026-11-23T00:00:01")
    made += [others.next_id(), ids.next_id()]
    assert made[-2:] == ["20261123-000001", "20261123-000002"]
    assert len(set(made)) == len(made)


def test_a_clock_that_was_ahead_when_the_loss_was_noticed_closes_no_later_day(stage: Stage) -> None:
    ids = stage.generator()
    ids.next_ids(3)
    stage.server.client().flushall()
    # as before it is set at a boot
    stage.set("2026-11-23T20:00")
    with pytest.raises(NumbersClosed):
        ids.next_id()
    stage.set("2026-11-22T12:00")
    with pytest.raises(NumbersClosed) as raised:
        ids.next_id()
    assert raised.value.wait_ms > 86_400_000
    noon_ms = round(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
    reply = ids._server.store.send(OpenRequest("open", ids._format.at(noon_ms), 50))
    assert isinstance(reply, SettlingTag)
    assert reply.wait_ms <= 6_000
    stage.set("2026-11-22T12:01")
    assert open_tag(stage.server.url, "orders", 50) == 50
    assert ids.next_id() == "20261122-000050"
    stage.set("2026-11-23T00:00:01")
    assert ids.next_id() == "20261123-000001"


def test_numbers_of_a_request_that_began_long_ago_are_not_used(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = stage.generator()
    # the first request shows the period; after the second one, the process is stopped between the reply and its use
    passed_s = iter([0.0, 0.0, 0.0, 6.0])

    def monotonic() -> float:
        return time.monotonic() + next(passed_s, 6.0)

    clock = SimpleNamespace(sleep=time.sleep, monotonic=monotonic, time_ns=time.time_ns)
    monkeypatch.setattr("snowredis.numbers.dated.time", clock)
    assert ids.next_id() == "20261122-000002"


def test_a_format_that_is_changed_repeats_no_text(stage: Stage) -> None:
    """The fourth of March, day first, and the third of April, month first, are written alike."""
    stage.set("2026-03-04T12:00")
    made = stage.generator(format="{date:%d%m%Y}-{number:06}").next_ids(3)
    stage.set("2026-04-03T12:00")
    other = DatedGenerator("orders", stage.server.url, format="{date:%m%d%Y}-{number:04}")
    made += other.next_ids(3)
    assert made[2:4] == ["04032026-000003", "04032026-0004"]
    # the number has another place
    with pytest.raises(ConfigError, match="place is 9/0 in the tag, 7/0 here"):
        DatedGenerator("orders", stage.server.url, format="{date:%m%d%y}-{number:04}").next_id()
    # a Redis that lost numbers may have lost texts of another format
    stage.server.save()
    stage.server.restart()
    with pytest.raises(ConfigError, match="texts is"):
        DatedGenerator("orders", stage.server.url, format="{date:%d%m%Y}-{number:06}").next_id()
    with pytest.raises(NumbersClosed):
        other.next_id()


def test_a_financial_year_begins_in_april_and_numbers_that_never_start_again_have_no_date(stage: Stage) -> None:
    ids = stage.generator(period="year", year_begins=4, format="{date:%Y}-{end:%y}/{number:03}")
    ever = stage.generator("ever", period="ever", format="INV-{number:04}")
    stage.set("2027-03-31T23:59")
    made = [ids.next_id(), ever.next_id()]
    stage.set("2027-04-01T00:00")
    made += [ids.next_id(), ever.next_id()]
    assert made == ["2026-27/001", "INV-0001", "2027-28/001", "INV-0002"]
    stage.server.save()
    stage.server.restart()
    with pytest.raises(NumbersClosed, match="open the tag beyond it, from 3 or later") as raised:
        ever.next_id()
    assert not raised.value.retry


def test_no_text_comes_twice_whatever_is_lost_and_wherever_the_clock_is_set(stage: Stage) -> None:
    chosen = random.Random(0)
    # clocks are set back by up to an hour, and never more before they were set forward again
    settings: dict[str, Any] = {"period": "hour", "zone": "Europe/Berlin", "failover_slack": 7_200.0}
    users = [stage.generator(**settings) for _ in range(4)]
    now = datetime(2026, 10, 24, 22, 40, tzinfo=UTC)
    made: list[str] = []
    closed = 0
    for _ in range(60):
        match chosen.randrange(12):
            case 0:
                stage.server.client().flushall()
            case 1:
                stage.server.save()
            case 2:
                stage.server.restart()
            case 3:
                # back, and forward again
                stage.set((now - timedelta(minutes=chosen.randrange(60))).isoformat()[:19])
            case 4 | 5 | 6:
                now += timedelta(minutes=chosen.choice([1, 30, 61, 200]))
                stage.set(now.isoformat()[:19])
        for user in chosen.sample(users, 2):
            try:
                made += user.next_ids(chosen.choice([1, 1, 4, 30]))
            except NumbersClosed:
                closed += 1
    assert len(set(made)) == len(made) > 100
    assert closed > 0


# --- settings -----------------------------------------------------------------------------------------


def test_it_is_a_kind_with_settings_by_url_and_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.generator("bills", period="month")
    url = f"dated+{stage.server.url}{'&' if '?' in stage.server.url else '?'}tag=bills&period=month"
    assert snowredis.generator(url).next_id() == "202611-000001"
    settings = {"kind": "dated", "tag": "bills", "period": "month", "url": stage.server.url}
    for name, value in settings.items():
        monkeypatch.setenv(f"SNOWREDIS_{name.upper()}", value)
    ids = snowredis.generator(format="{date:%m%Y}.{number:03}")
    assert ids.next_id() == "112026.001"
    assert (ids.description.text_length, ids.description.sortable) == (10, False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tag": "x", "period": "week"}, "period must be one of hour, day, month, year, ever, not 'week'"),
        ({"tag": "x", "year_begins": 4}, "year_begins=4 is for years, and the period is day"),
        ({"tag": "x", "period": "ever", "format": "{date:%Y}-{number}"}, "shows a date, but these numbers never"),
        ({"tag": "x", "url": ["redis://a", "redis://b"]}, "dated numbers are on one server"),
        ({"tag": "x", "pool": "y"}, "unknown setting 'pool' of dated generators"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(snowredis.ConfigError, match=words):
        snowredis.generator("dated", **settings)
