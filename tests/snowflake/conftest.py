"""Fixture: pools that were created in a private redis-server."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import pools
from tests.support.servers import RedisServer

_numbers = itertools.count(1)


def make_pool(server: RedisServer, **options: Any) -> str:
    """Create a pool and return its name."""
    name = f"pool{next(_numbers)}"
    pools.new_pool(server.url, name, **options)
    return name


@pytest.fixture
def new_pool(server: RedisServer) -> Callable[..., str]:
    return lambda **options: make_pool(server, **options)
