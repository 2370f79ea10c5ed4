"""`whois`: who made an id; how it can stand in two tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import snowredis
from snowredis.snowflake.replies import LossReason
from tests.support.records import record_of

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
    for part in (str(an_id), socket.gethostname(), str(os.getpid()), r"web \x1b[31m1", "still held", "certain"):
        assert part in result.out
    ids.close()
    assert "still held" not in cli("whois", str(an_id), "--pool", pool_name).out


def test_any_form_of_an_id_will_do(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    an_id = ids.next_id()
    text = snowredis.encode(an_id, "base62")
    found = json.loads(cli("whois", text, "--format", "base62", "--json", "--pool", pool_name).out)
    assert found["id"] == str(an_id)
    assert found["holder"]["label"] == "web \x1b[31m1"
    assert (found["certainty"], found["duplicate_causes"]) == ("certain", None)
    assert cli("whois", "no id!", "--pool", pool_name).code == 3


def test_what_cannot_be_known_is_said_so_with_another_exit_code(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator
) -> None:
    an_id = ids.next_id() + (1 << 60)
    result = cli("whois", str(an_id), "--pool", pool_name)
    assert result.code == 1
    assert "unknown" in result.out
    assert "future" in result.out


def test_two_equal_ids_are_explained(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator, client: redis.Redis
) -> None:
    an_id = str(ids.next_id())
    other = f"{pool_name}-twin"
    cli("pool", "create", other)
    result = cli("whois", an_id, an_id, "--pool", pool_name)
    assert result.code == 0
    assert "how it can be in two places" in result.out
    assert "written twice" in result.out
    # the same layout in the same Redis: it may be among others of other tests
    assert "fill one table" in result.out
    causes = json.loads(cli("whois", an_id, an_id, "--pool", pool_name, "--json").out)["duplicate_causes"]
    assert not any(cause["shown"] for cause in causes)
    # a clone was refused: this is what the script writes then
    now_ms = snowredis.WorkerPool(client, pool_name).info().now_ms
    record = record_of(client, pool_name, 0)
    lost: dict[Any, Any] = {"event": "lost", "worker": "0", "owner": record.owner, "reason": LossReason.COPIED}
    lost |= {"from": "0", "until": record.until_ms, "at": str(now_ms)}
    client.xadd(f"snowredis:{{{pool_name}}}:events", lost)
    cloned = cli("whois", an_id, an_id, "--pool", pool_name)
    assert cloned.code == 1
    assert "shown     a process was cloned" in cloned.out


def test_two_different_ids_are_two_answers(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    one, two = map(str, ids.next_ids(2))
    lines = cli("whois", one, two, "--pool", pool_name, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [one, two]
