"""Fixtures: a tag, and a redis-server whose clock a test sets."""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snowredis.numbers import DatedGenerator, create_tag, show_tag
from tests.lab.chaos.shim import StepClock
from tests.support.servers import RedisServer, stepped_server

_numbers = itertools.count()


@pytest.fixture
def tag() -> str:
    """A tag that no other test uses."""
    return f"tag-{next(_numbers)}"


class Stage:
    """A private redis-server, and the time that its clock shows."""

    def __init__(self, server: RedisServer, clock: StepClock) -> None:
        self.server, self._clock = server, clock

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
def stage(tmp_path: Path, step_library: Path) -> Iterator[Stage]:
    with stepped_server(tmp_path, step_library) as (server, clock):
        stage = Stage(server, clock)
        stage.set("2026-11-22T12:00")
        yield stage
