"""`numbers`: create, show, open, change and delete tags."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import redis

import snowredis
from snowredis.numbers import DatedGenerator, NumbersClosed
from tests.cli.conftest import Cli


def test_a_tag_is_created_used_shown_and_deleted(cli: Cli, server_url: str) -> None:
    assert cli("numbers", "show", "bills").code == 5
    created = cli("numbers", "create", "bills", "--start", "100", "--maximum", "9999")
    assert (created.code, created.out) == (0, "tag bills was created; its first number is 100\n")
    again = cli("numbers", "create", "bills", "--start", "100", "--maximum", "9999")
    assert (again.code, "is not new: it exists" in again.err) == (3, True)
    settings = {"url": server_url, "tag": "bills", "start": 100, "maximum": 9999, "step": 50}
    with snowredis.generator("segment", **settings) as ids:
        assert ids.next_ids(3) == [100, 101, 102]
        shown = cli("numbers", "show", "bills").out
    assert "100 to 9,999" in shown
    assert "open" in shown
    assert re.search(r"handed out +100 in 2 segments to 1 processes", shown) or "in 1 segments" in shown
    state = json.loads(cli("numbers", "show", "bills", "--json").out)
    segments = state["segments"]
    assert (segments["reason"], segments["alarm"], state["dated"]) == (None, None, None)
    assert int(segments["next_number"]) == 10_000 - int(segments["remaining"]) >= 150
    # an open tag is never moved back
    assert cli("numbers", "open", "bills", "--from", "5", "--yes").out == "tag bills is open; its next number is 150\n"
    assert cli("numbers", "delete", "bills", "--yes").out == "tag bills was deleted\n"
    assert cli("numbers", "delete", "bills", "--yes").out == "there is no tag bills\n"


def test_a_tag_that_redis_lost_is_opened_by_a_person(cli: Cli, server_url: str) -> None:
    with snowredis.generator("segment", url=server_url, tag="lost") as ids:
        with pytest.raises(NumbersClosed):
            ids.next_id()
        assert "closed: this Redis does not know the tag" in cli("numbers", "show", "lost").out
        # nobody can be asked
        assert cli("numbers", "open", "lost", "--from", "500").code == 2
        opened = cli("numbers", "open", "lost", "--from", "500", "--yes")
        assert (opened.code, opened.out) == (0, "tag lost is open; its next number is 500\n")
        assert ids.next_id() == 500
    changed = cli("numbers", "change", "lost", "--maximum", "1000000", "--yes")
    assert changed.code == 0
    assert "tag lost was changed; its next number is" in changed.out
    shown = cli("numbers", "show", "lost").out
    assert "1 to 1,000,000" in shown


def test_dated_numbers_are_shown_with_their_period_and_whether_they_are_closed(cli: Cli, server_url: str) -> None:
    settings: dict[str, Any] = {"period": "year", "zone": "Europe/Berlin", "format": "R{date:%Y}/{number:04}"}
    with DatedGenerator("receipts", server_url, **settings) as ids:
        with pytest.raises(NumbersClosed):
            ids.next_id()
        closed = " ".join(cli("numbers", "show", "receipts").out.split())
        assert "closed: this Redis does not know the tag" in closed
        assert "the next period that is open begins at" in closed
        assert "none yet in this period" in closed
        ids.create()
        assert ids.next_ids(1_200)[-1].endswith("/1200")
        shown = cli("numbers", "show", "receipts").out
        assert re.search(r"state +open", shown)
        assert re.search(r"period +year of Europe/Berlin; now 20\d\d\n", shown)
        assert re.search(r"last number +1,200\n", shown)
        assert "R{date:%Y}/{number:04}" in shown
        # segments of this name are something else
        assert "handed out" not in shown
        state = json.loads(cli("numbers", "show", "receipts", "--json").out)
    assert state["dated"]["last_number"] == "1200"
    assert (state["dated"]["reason"], state["dated"]["opens_at"]) == (None, None)
    assert state["segments"] is None
    cli("numbers", "create", "receipts")
    both = cli("numbers", "show", "receipts").out
    assert "handed out" in both
    assert "dated numbers of receipts" in both


def test_without_a_tag_all_tags_are_listed_and_other_commands_need_its_name(
    cli: Cli, client: redis.Redis, server_url: str
) -> None:
    for pattern in ("snowredis:segment:*", "snowredis:{*}:dated"):
        for key in client.scan_iter(match=pattern):
            client.delete(key)
    assert cli("numbers", "show").out.startswith("there is no tag at ")
    assert cli("numbers", "create", "coupons", "--start", "100").code == 0
    assert cli("numbers", "create", "bills", "--period", "day").code == 0
    with snowredis.generator("segment", url=server_url, tag="lost") as ids, pytest.raises(NumbersClosed):
        ids.next_id()
    shown = [" ".join(line.split()) for line in cli("numbers", "show").out.splitlines()]
    assert shown[1:] == [
        "tag numbers state next",
        "bills dated by day open 1",
        "coupons segments open 100",
        "lost segments closed 1",
    ]
    assert json.loads(cli("numbers", "show", "--json").out)[1] == {
        "tag": "coupons",
        "numbers": "segments",
        "state": "open",
        "next": "100",
    }
    refused = cli("numbers", "open", "--from", "3")
    assert (refused.code, "the following arguments are required: TAG" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "segment", "start": 500, "maximum": 900, "durability": "assured", "failover_slack": 1.5},
        {"kind": "dated", "period": "month", "zone": "Europe/Berlin", "format": "INV {date:%Y%m} {number:04}"},
        {"kind": "dated", "period": "year", "durability": "assured", "maximum": 77},
    ],
    ids=lambda settings: settings["kind"],
)
def test_the_advice_for_a_new_tag_creates_the_one_that_the_process_has(
    cli: Cli, server_url: str, pool_name: str, settings: dict[str, Any]
) -> None:
    kind, *_ = settings.values()
    given = {name: value for name, value in settings.items() if name != "kind"}
    with snowredis.generator(kind, url=server_url, tag=pool_name, **given) as ids:
        with pytest.raises(NumbersClosed) as closed:
            ids.next_id()
        advised = re.search(r"create it: snowredis (numbers create .*?); otherwise", str(closed.value))
        assert advised is not None
        created = cli(*shlex.split(advised[1]))
        assert (created.code, created.err) == (0, "")
        made = str(ids.next_id())
    assert made == "500" if kind == "segment" else made.endswith("1")


def test_the_advice_for_a_lost_tag_opens_the_one_that_the_process_has(
    cli: Cli, server_url: str, pool_name: str
) -> None:
    with snowredis.generator("segment", url=server_url, tag=pool_name, start=500, maximum=900) as ids:
        with pytest.raises(NumbersClosed) as closed:
            ids.next_id()
        command = str(closed.value).rpartition("snowredis ")[2].rstrip(".").replace("--from N", "--from 700")
        cli("numbers", "delete", pool_name, "--yes")
        assert cli(*shlex.split(command), "--yes").out == f"tag {pool_name} is open; its next number is 700\n"
        assert ids.next_id() == 700


def test_options_of_the_other_kind_of_tag_are_refused(cli: Cli, pool_name: str) -> None:
    for options, name in (
        (("--zone", "Europe/Berlin"), "--zone"),
        (("--format", "{date:%Y%m%d}-{number}"), "--format"),
        (("--period", "day", "--start", "5"), "--start"),
        (("--period", "day", "--share", "1/2"), "--share"),
    ):
        refused = cli("numbers", "create", pool_name, *options)
        assert (refused.code, f"{name}: only" in refused.err) == (2, True)
    assert cli("numbers", "show", pool_name).code == 5


def test_what_is_opened_by_period_is_never_a_tag_of_segments(cli: Cli, server_url: str, pool_name: str) -> None:
    refused = cli("numbers", "open", pool_name, "--from", "5", "--period", "2026-11-22", "--yes")
    assert (refused.code, f"knows no dated numbers of {pool_name}" in refused.err) == (3, True)
    assert cli("numbers", "show", pool_name).code == 5
    # a process that asks makes them known
    with DatedGenerator(pool_name, server_url) as ids, pytest.raises(NumbersClosed):
        ids.next_id()
    unnamed = cli("numbers", "open", pool_name, "--from", "5", "--yes")
    assert (unnamed.code, "has dated numbers. Add the period" in unnamed.err) == (2, True)
    cli("numbers", "create", pool_name)
    assert cli("numbers", "delete", pool_name, "--yes").out == f"tag {pool_name} was deleted\n"
    assert cli("numbers", "show", pool_name).code == 5


def test_an_alarm_names_its_numbers_in_text_and_json(
    cli: Cli, client: redis.Redis, server_url: str, pool_name: str
) -> None:
    cli("numbers", "create", pool_name, "--start", "1000")
    key = f"snowredis:segment:{{{pool_name}}}"
    client.hset(key, mapping={"alarm": "10 25 1763800000000", "alarms": "2", "reason": "rolled-back"})
    shown = " ".join(cli("numbers", "show", pool_name).out.split())
    assert "alarms 2; at 2025-11-22T08:26:40" in shown
    assert "the numbers 1,010 to 1,024 may have been handed out twice" in shown
    assert "closed: Redis forgot numbers" in shown
    alarm = json.loads(cli("numbers", "show", pool_name, "--json").out)["segments"]["alarm"]
    assert alarm == {"first": "1010", "last": "1024", "at": "2025-11-22T08:26:40.000Z"}
    client.delete(key)


def test_what_is_not_a_tag_of_this_version_hides_no_other(
    cli: Cli, client: redis.Redis, server_url: str, pool_name: str
) -> None:
    cli("numbers", "create", pool_name, "--start", "7")
    foreign, former = "snowredis:segment:{foreign}", "snowredis:segment:{former}"
    client.set(foreign, "a text")
    client.hset(former, mapping={"signature": "format=2 start=1 maximum=9", "next": "41"})
    lines = cli("numbers", "show").out
    assert re.search(rf"{pool_name} +segments +open +7\n", lines)
    assert re.search(r"foreign +unknown +Redis at", lines)
    assert re.search(r"former +segments +unknown", lines)
    shown = " ".join(cli("numbers", "show", "former").out.split())
    assert "not readable: it is stored in format 2" in shown
    assert "position 41" in shown
    refused = cli("numbers", "open", "former", "--from", "42", "--yes")
    assert (refused.code, "does not write" in refused.err) == (3, True)
    assert cli("numbers", "delete", "former", "--yes").code == 0
    assert cli("numbers", "open", "former", "--from", "42", "--yes").code == 0
    client.delete(foreign, former)


def test_a_refused_change_of_a_tag_names_the_reason_and_leaves_it_open(cli: Cli, pool_name: str) -> None:
    cli("numbers", "create", pool_name, "--start", "10")
    for maximum in ("9", "-1", str(2**70), "many"):
        assert cli("numbers", "change", pool_name, "--maximum", maximum, "--yes").code != 0
    assert cli("numbers", "change", pool_name, "--maximum", "90").code == 2
    assert cli("numbers", "change", pool_name, "--yes").code == 2
    assert re.search(r"state +open\n", cli("numbers", "show", pool_name).out)
    missing = cli("numbers", "change", f"{pool_name}x", "--maximum", "90", "--yes")
    assert (missing.code, "there is no tag" in missing.err) == (3, True)
    assert cli("numbers", "show", f"{pool_name}x").code == 5
