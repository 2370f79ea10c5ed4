"""The records of the service: those of the commands, and as /openapi.json describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from starlette.testclient import TestClient

import snowredis
from snowredis.cli import main
from snowredis.web.service import create_app
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import client_of

Served: TypeAlias = tuple[TestClient, snowredis.SnowflakeGenerator]
# values that another reading has changed
_MOVING = {"at", "heartbeat_at", "ends_at", "ids_until", "ids_made", "ids_per_second", "clock_offset_ms"}


@pytest.fixture
def served(server: RedisServer, pool_name: str, each_request_reads: None) -> Iterator[Served]:
    """Yield a client of a service, and a generator of its pool."""
    new_pool(server.url, pool_name)
    app = create_app(server.url, pools=[pool_name])
    with snowredis.connect(server.url, pool=pool_name, label="maker") as ids:
        ids.claim()
        with client_of(app) as client:
            yield client, ids


def steady(value: Any) -> Any:
    """Return *value* without what changes from one reading to the next."""
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in _MOVING}
    return [steady(item) for item in value] if isinstance(value, list) else value


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    main([*arguments])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_service_and_the_commands_show_the_same(
    served: Served,
    server: RedisServer,
    pool_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client, ids = served
    an_id = ids.next_id()
    options = ("--url", server.url, "--pool", pool_name, "--json")
    assert [steady(client.get("/workers").json())] == steady(printed(capsys, "workers", *options))
    assert client.get("/events").json()["events"] == printed(capsys, "events", *options)
    whois = client.get(f"/whois/{an_id}").json()["whois"]
    assert whois["maker"]["label"] == "maker"
    assert [steady(whois)] == steady(printed(capsys, "whois", str(an_id), *options))
