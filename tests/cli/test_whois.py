"""`whois`: who made an id; how it can stand in two tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import snowredis

Cli = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def ids(cli: Cli, pool_name: str, server_url: str, hostile_labels: None) -> Iterator[snowredis.SnowflakeGenerator]:
    cli("pool", "create", pool_name)
    with snowredis.connect(server_url, pool=pool_name, label="web \x1b[31m1") as made:
        yield made


def test_it_says_host_pid_label_and_lease(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    import os
    import socket

    an_id = ids.next_id()
    result = cli("whois", str(an_id), "--pool", pool_name)
    assert (result.code, result.err) == (0, "")
    for part in (str(an_id), socket.gethostname(), str(os.getpid()), r"web \x1b[31m1", "alive", "certain"):
        assert part in result.out
    ids.close()
    assert "released" in cli("whois", str(an_id), "--pool", pool_name).out


def test_any_form_of_an_id_will_do(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    an_id = ids.next_id()
    text = snowredis.encode(an_id, "base62")
    found = json.loads(cli("whois", text, "--json", "--pool", pool_name).out)
    assert found["id"] == str(an_id)
    assert found["maker"]["label"] == "web \x1b[31m1"
    assert found["certainty"] == "certain"
    assert cli("whois", "no id!", "--pool", pool_name).code == 3


def test_what_cannot_be_known_is_said_so_with_another_exit_code(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator
) -> None:
    an_id = ids.next_id() + (1 << 60)
    result = cli("whois", str(an_id), "--pool", pool_name)
    assert result.code == 1
    assert "unknown" in result.out
    assert "future" in result.out


def test_two_different_ids_are_two_answers(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    one, two = map(str, ids.next_ids(2))
    lines = cli("whois", one, two, one, "--pool", pool_name, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [one, two]


def test_who_made_an_id_of_a_deleted_pool_is_unknown(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator
) -> None:
    an_id = str(ids.next_id())
    ids.close()
    assert cli("pool", "delete", pool_name, "--yes").code == 0
    gone = cli("whois", an_id, "--pool", pool_name)
    assert (gone.code, gone.out, f"there is no pool {pool_name!r}" in gone.err) == (5, "", True)
    # the next pool of that name knows nothing of the one before
    assert cli("pool", "create", pool_name, "--yes").code == 0
    found = json.loads(cli("whois", an_id, "--pool", pool_name, "--json").out)
    assert (found["certainty"], found["maker"]) == ("unknown", None)
