"""`numbers`: create, show, open and delete tags."""

import json
import re
import shlex
from typing import Any

import pytest
import redis

import snowredis
from snowredis.numbers import DatedGenerator, NumbersClosed
from snowredis.numbers.stores import tag_keys
from tests.cli.conftest import Cli


def test_a_tag_is_created_used_shown_and_deleted(cli: Cli, server_url: str) -> None:
    assert cli("numbers", "show", "bills").code == 5
    created = cli("numbers", "create", "bills", "--start", "100", "--maximum", "9999")
    assert (created.code, created.out) == (0, "tag bills was created; its first number is 100\n")
    again = cli("numbers", "create", "bills", "--start", "100", "--maximum", "9999")
    assert (again.code, "is not new: it exists" in again.err) == (3, True)
    with snowredis.generator("segment", url=server_url, tag="bills", step=50) as ids:
        assert ids.next_ids(3) == [100, 101, 102]
        shown = cli("numbers", "show", "bills").out
    assert re.search(r"state +open\n", shown)
    assert re.search(r"next number +150\n", shown)
    state = json.loads(cli("numbers", "show", "bills", "--json").out)
    assert (state["state"], state["reason"], state["next_number"], state["maximum"]) == ("open", None, "150", "9999")
    # an open tag is never moved back
    assert cli("numbers", "open", "bills", "--from", "5", "--yes").out == "tag bills is open; its next number is 150\n"
    assert cli("numbers", "delete", "bills", "--yes").out == "tag bills was deleted\n"
    assert cli("numbers", "delete", "bills", "--yes").out == "there is no tag bills\n"


def test_a_tag_that_redis_lost_is_created_again_above_its_numbers(cli: Cli, server_url: str, pool_name: str) -> None:
    with snowredis.generator("segment", url=server_url, tag=pool_name) as ids:
        with pytest.raises(NumbersClosed) as closed:
            ids.next_id()
        shown = cli("numbers", "show", pool_name).out
        assert re.search(r"why +this Redis does not know the tag", shown)
        # what was given to it is not known
        assert "stride" not in shown
        assert "numbers create TAG --start N" in " ".join(cli("doctor").out.split())
        refused = cli("numbers", "open", pool_name, "--from", "500", "--yes")
        assert (refused.code, "nor its start, stride and maximum" in refused.err) == (3, True)
        advised = re.search(r"snowredis (numbers create \S+ --start N)", str(closed.value))
        assert advised is not None
        assert cli(*shlex.split(advised[1].replace("N", "500"))).code == 0
        assert ids.next_id() == 500
    client = redis.Redis.from_url(server_url)
    client.hset(tag_keys(pool_name)[0], "identity", "0" * 40)
    with snowredis.generator("segment", url=server_url, tag=pool_name) as ids:
        with pytest.raises(NumbersClosed, match="open the tag beyond it"):
            ids.next_id()
        # nobody can be asked
        assert cli("numbers", "open", pool_name, "--from", "9000").code == 2
        opened = cli("numbers", "open", pool_name, "--from", "9000", "--yes")
        assert (opened.code, opened.out) == (0, f"tag {pool_name} is open; its next number is 9,000\n")


def test_dated_numbers_are_shown_with_their_period_and_whether_they_are_closed(cli: Cli, server_url: str) -> None:
    settings: dict[str, Any] = {"period": "year", "zone": "Europe/Berlin", "format": "R {date:%Y}/{number:04}"}
    with DatedGenerator("receipts", server_url, **settings) as ids:
        with pytest.raises(NumbersClosed) as raised:
            ids.next_id()
        closed = " ".join(cli("numbers", "show", "receipts").out.split())
        assert "state closed why this Redis does not know the tag" in closed
        assert " opens 20" in closed
        advised = re.search(r"create it: snowredis (numbers create .*?); otherwise", str(raised.value))
        assert advised is not None
        assert cli(*shlex.split(advised[1])).code == 0
        assert ids.next_ids(1_200)[-1].endswith("/1200")
        shown = cli("numbers", "show", "receipts").out
        assert re.search(r"state +open\n", shown)
        assert re.search(r"period +20\d\d\n", shown)
        assert re.search(r"next number +1201\n", shown)
        assert "format=R {date:%Y}/{number:04}" in " ".join(shown.split())
        period = json.loads(cli("numbers", "show", "receipts", "--json").out)["period"]
        assert f"--period {period}" in cli("numbers", "open", "receipts", "--from", "5", "--yes", code=2).err
        opened = cli("numbers", "open", "receipts", "--from", "1300", "--period", period, "--yes")
        assert opened.out == f"tag receipts is open in {period}; its next number is 1,300\n"
        assert cli("numbers", "create", "receipts", "--period", "year", "--start", "5").code == 3
    cli("numbers", "delete", "receipts", "--yes")


def test_without_a_tag_all_tags_are_listed_and_other_commands_need_its_name(
    cli: Cli, client: redis.Redis, server_url: str
) -> None:
    for key in client.scan_iter(match="snowredis:{*}:numbers"):
        client.delete(key)
    assert cli("numbers", "show").out.startswith("there is no tag at ")
    assert cli("numbers", "create", "coupons", "--start", "100").code == 0
    assert cli("numbers", "create", "bills", "--period", "ever", "--format", "B{number}").code == 0
    foreign, former = tag_keys("foreign")[0], tag_keys("former")[0]
    client.set(foreign, "a text")
    client.hset(former, mapping={"signature": "format=2 start=1 maximum=9", "next": "41"})
    everything = cli("numbers", "show")
    shown = [" ".join(line.split()) for line in everything.out.splitlines()]
    assert [line.split()[:2] for line in shown[1:]] == [["bills", "open"], ["coupons", "open"], ["former", "unknown"]]
    assert everything.err.startswith("foreign: Redis at")
    of_programs = map(json.loads, cli("numbers", "show", "--json").out.splitlines())
    assert [one["tag"] for one in of_programs] == ["bills", "coupons", "former"]
    assert "of another version" in cli("numbers", "open", "former", "--from", "42", "--yes", code=3).err
    assert cli("numbers", "delete", "former", "--yes").code == 0
    client.delete(foreign)
    assert "the following arguments are required: TAG" in cli("numbers", "open", "--from", "3", code=2).err
