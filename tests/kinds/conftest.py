"""Fixtures of the tests of generators."""

import contextlib
from typing import Any

import pytest

from snowredis import testing
from snowredis.errors import ConfigError
from snowredis.numbers import create_tag
from tests.support.servers import RedisServer

# kind -> settings that a generator needs here
KINDS: dict[str, dict[str, Any]] = {
    "snowflake": {"pool": "orders"},
    "segment": {"tag": "invoices"},
    "dated": {"tag": "orders", "period": "year"},
    "uuid7": {},
    "uuid4": {},
    "ulid": {},
    "objectid": {},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name of each kind."""
    name: str = request.param
    return name


@pytest.fixture
def settings(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings with which a generator of *kind* works here."""
    if kind in ("snowflake", "segment"):
        return KINDS[kind] | {"url": testing.memory_pool()}
    if kind == "dated":
        server: RedisServer = request.getfixturevalue("server")
        with contextlib.suppress(ConfigError):
            create_tag(server.url, **KINDS[kind])
        return KINDS[kind] | {"url": server.url}
    return KINDS[kind]
