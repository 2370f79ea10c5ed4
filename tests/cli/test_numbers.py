"""`numbers`: create, show, open, change and delete tags."""

from __future__ import annotations

import json
import re
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
    assert (segments["exists"], segments["reason"], segments["alarm"], state["dated"]) == (True, None, None, None)
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
    assert (state["dated"]["closed_reason"], state["dated"]["opens_at"]) == (None, None)
    assert state["segments"] is None
    cli("numbers", "create", "receipts")
    both = cli("numbers", "show", "receipts").out
    assert "handed out" in both
    assert "dated numbers of receipts" in both


def test_without_a_tag_all_tags_are_listed_and_other_commands_say_where_to_look(
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
    assert shown[2:] == [
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
    assert (refused.code, "These are the tags: snowredis numbers show" in refused.err) == (2, True)
