"""`events`: what happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis

import snowredis

Cli = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.usefixtures("hostile_labels")
def test_the_newest_are_shown_one_a_line(
    cli: Cli, pool_name: str, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("pool", "create", pool_name)
    for number in range(3):
        snowredis.connect(server_url, pool=pool_name, label=f"\x1b]0;{number}\x07").close()
        with snowredis.connect(server_url, pool=pool_name, label=f"\x1b]0;{number}\x07") as ids:
            ids.next_id()
    monkeypatch.setattr("snowredis.cli.commands.workers.NEWEST_EVENTS", 3)
    result = cli("events", "--pool", pool_name)
    assert result.code == 0
    assert [line.split()[1] for line in result.out.splitlines()[1:]] == ["released", "claimed", "released"]
    assert "\x1b" not in result.out
    assert r"\x1b]0;2" in result.out
    everything = [json.loads(line) for line in cli("events", "--pool", pool_name, "--json").out.splitlines()]
    assert [event["kind"] for event in everything] == ["floor", *["claimed", "released"] * 3]
    assert (everything[0]["reason"], everything[0]["text"]) == ("no-pool", "the pool was created as a new one")
    assert everything[1]["label"] == "\x1b]0;0\x07"


def test_events_that_somebody_made_up_do_nothing(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name)
    key = f"snowredis:{{{pool_name}}}:events"
    client.xadd(key, {"event": "alarm", "worker": "-1", "at": "99999999999999", "reason": "\x1b[2J\u202ealarm"})
    client.xadd(key, {"event": "claimed", "worker": "1", "at": "-5", "owner": "[" * 5000, "until": "-1"})
    client.xadd(key, {"something": "else"})
    result = cli("events", "--pool", pool_name)
    assert result.code == 0
    # no time is negative
    assert len(result.out.splitlines()) == 1 + 2
    assert all(char == "\n" or char.isprintable() for char in result.out)
