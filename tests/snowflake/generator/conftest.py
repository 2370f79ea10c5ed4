"""Fixtures: a manual clock, and a pool in memory."""

from collections.abc import Iterator

import pytest

from snowredis.testing import ManualClock, MemoryPool, memory_pool
from tests.lab.interrupts.points import stop_watching


@pytest.fixture(autouse=True, scope="module")
def full_speed_afterwards() -> Iterator[None]:
    """Undo what Points leave in a process on Python 3.12 and later."""
    yield
    stop_watching()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> MemoryPool:
    return memory_pool(clock=clock)
