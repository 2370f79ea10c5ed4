"""pytest plugin: a fixture with the same ids in every run, and one with a pool on a private Redis.

pytest loads it in every run where snowredis is installed, so it imports only pytest until a fixture is used.

    def test_an_order_has_an_id(snowredis_ids):
        assert make_order().id == 132271570944000000  # it calls snowredis.next_id()
        snowredis_ids.clock.advance(1000)  # ms

    def test_two_processes(snowredis_pool):
        ids, others = snowredis_pool.connect(), snowredis_pool.connect()

Both use the settings of the program that is tested, except those of its server: those it gave to
snowredis.configure(), and SNOWREDIS_* variables. Override the fixture ``snowredis_settings`` to change them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from snowredis.settings import Settings
    from snowredis.snowflake.generator import SnowflakeGenerator
    from snowredis.testing import ManualClock

    class FixedIds(SnowflakeGenerator):
        """Value of the fixture ``snowredis_ids``: a generator, and its clock."""

        clock: ManualClock


@dataclass(frozen=True)
class LivePool:
    """Value of the fixture ``snowredis_pool``: a pool on a private Redis.

    Attributes:
        url: the server's URL for snowredis, in this process and in others.
        name: the pool's name, another one in every test.
        redis_url: the same server's URL for redis-py.
    """

    url: str
    name: str
    redis_url: str
    _settings: dict[str, Any] = field(repr=False)
    _generators: list[SnowflakeGenerator] = field(default_factory=list, repr=False)

    def connect(self, **settings: Unpack[Settings]) -> SnowflakeGenerator:
        """Return a generator on this pool, as snowredis.connect() does; it is closed when the test ends."""
        from snowredis.connection import connect

        self._generators.append(connect(self.url, **{"pool": self.name, **self._settings, **settings}))
        return self._generators[-1]


@pytest.fixture
def snowredis_settings() -> dict[str, Any]:
    """Arguments of snowredis.connect() for the other fixtures. Override it to return some."""
    return {}


@pytest.fixture
def snowredis_ids(snowredis_settings: dict[str, Any]) -> Iterator[FixedIds]:
    """A generator in memory, which snowredis.next_id() uses, too, until the test ends.

    The ids are the same in every run: worker id 0, on a test clock (``.clock``, a snowredis.testing.ManualClock) that
    starts at 2026-01-01 00:00 UTC and stands still until the test moves it. After snowredis.close() the next id comes
    from another generator on the same pool. Generators that the program made with snowredis.connect() do not change.
    """
    from snowredis.connection import connect
    from snowredis.testing import ManualClock, memory_pool, use

    clock = ManualClock()
    # a random sequence would differ from run to run
    settings = {**_settings(), "sequence_start": "zero", **snowredis_settings}
    settings |= {"url": memory_pool(clock=clock), "clock": clock}
    ids: Any = connect(**settings)
    ids.__class__ = type("FixedIds", (type(ids),), {"__slots__": (), "clock": clock})
    with use(lambda: connect(**settings) if ids.closed else ids):
        yield ids
    ids.close()


@pytest.fixture
def snowredis_pool(_snowredis_server: tuple[str, str], snowredis_settings: dict[str, Any]) -> Iterator[LivePool]:
    """A new pool on a private redis-server, one server for the whole run: ``.connect()``, ``.url``, ``.name``.

    The server is the one that ``embedded://`` would start: redis-server on PATH, else fakeredis. Where there is none,
    the test is skipped.
    """
    url, redis_url = _snowredis_server
    pool = LivePool(url, f"test-{next(_numbers)}", redis_url, _settings() | snowredis_settings)
    yield pool
    for ids in pool._generators:
        ids.close()


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _snowredis_server() -> Iterator[tuple[str, str]]:
    import tempfile
    from urllib.parse import quote

    from snowredis import embedded
    from snowredis.errors import StoreUnavailable

    # the path of pytest's temporary directory may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="snowredis-", ignore_cleanup_errors=True) as temporary:
        # its lock is beside it
        directory = f"{temporary}/redis"
        try:
            redis_url = embedded.start(directory).url
        except StoreUnavailable as error:
            pytest.skip(str(error))
        yield f"embedded://{quote(directory)}", redis_url
        embedded.stop(directory)


def _settings() -> dict[str, Any]:
    """Return the settings of the program that is tested, except those of its server, and its clock."""
    from snowredis.process_generator import effective_settings

    settings = {name: value for name, value in effective_settings().items() if name not in ("url", "pool", "clock")}
    # there are no replicas; and only a pool that was created with it has a number
    return settings | {"min_replicas": 0} | ({"datacenter": 0} if settings.get("datacenter") == "auto" else {})
