"""One fixture for registries on fakeredis and on a real redis-server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.registry.registry import NumberPlace, RedisRegistry, Registry, RegistryReply
from tests.support.servers import RedisServer

LAYOUT = Layout(timestamp_bits=41, datacenter_bits=3, backup_bits=1, worker_bits=8, sequence_bits=10)
PLACE = NumberPlace.of(LAYOUT)
_names = itertools.count(1)


@dataclass
class RegistryUnderTest:
    """A registry, and what happens to its Redis."""

    registry: Registry
    wipe: Callable[[], object]
    # another client of the same registry, which has seen nothing
    another: Callable[[NumberPlace | None], Registry]

    def take(self, pool: str, registration: str = "", wanted: int | None = None) -> RegistryReply:
        return self.registry.take(pool, registration or f"{abs(hash(pool)):x}", wanted=wanted, where="here")

    def confirm(
        self, pool: str, number: int, registration: str = "", *, highest: int = -1, first: bool = True
    ) -> RegistryReply:
        name = registration or f"{abs(hash(pool)):x}"
        return self.registry.confirm(pool, name, number, highest=highest, first=first, where="here")


@pytest.fixture(params=["fakeredis", "redis"])
def place(request: pytest.FixtureRequest) -> Iterator[RegistryUnderTest]:
    name = f"r{next(_names)}"
    server: Any
    if request.param == "fakeredis":
        fakeredis = pytest.importorskip("fakeredis")
        from snowredis.embedded.fake import install_info

        install_info()
        server = fakeredis.FakeRedis()
        wipe = server.flushall
    else:
        running: RedisServer = request.getfixturevalue("server")
        server, wipe = running.url, running.client().flushall
    registry = RedisRegistry(server, name, PLACE)
    yield RegistryUnderTest(registry, wipe, lambda other: RedisRegistry(server, name, other))
    registry.close()
