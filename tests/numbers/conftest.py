"""Fixtures: a tag, and a redis-server whose clock is stepped by a preloaded library."""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snowredis.numbers import DatedGenerator, create_tag, show_tag
from tests.lab.chaos import shim
from tests.support.servers import RedisServer

_numbers = itertools.count()


@pytest.fixture
def tag() -> str:
    """A tag that no other test uses."""
    return f"tag-{next(_numbers)}"


@pytest.fixture(scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library, reason = shim.build(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip(reason)
    return library


class Stage:
    """A private redis-server, and the time that its clock shows."""

    def __init__(self, directory: Path, library: Path) -> None:
        self._clock = shim.StepClock(directory / "clock", library)
        self.server = RedisServer(directory, environment=self._clock.environment)
        self.server.start()

    def set(self, time_text: str) -> None:
        """Set the clock of Redis; generators learn of it from its replies only."""
        at = datetime.fromisoformat(time_text).replace(tzinfo=UTC)
        self._clock.set(at.timestamp() - time.time())

    def generator(self, tag: str = "orders", **settings: Any) -> DatedGenerator:
        """Return a generator of *tag*, which is created unless it exists."""
        constants = {name: settings.pop(name) for name in ("durability", "failover_slack") if name in settings}
        if show_tag(self.server.url, tag) is None:
            create_tag(self.server.url, tag, **{"period": "day"} | settings | constants)
        return DatedGenerator(tag, self.server.url, **settings)


@pytest.fixture
def stage(tmp_path: Path, _library: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, _library)
    stage.set("2026-11-22T12:00")
    yield stage
    stage.server.kill()
