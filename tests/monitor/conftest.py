"""Fixtures of the tests of monitoring: a manual clock, a pool in memory, and names of processes."""

from __future__ import annotations

import pytest

from snowredis.process.names import owner_text
from snowredis.testing import ManualClock, MemoryPool, memory_pool


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryPool:
    return memory_pool(clock=clock)


@pytest.fixture
def each_generator_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the generators of this process name themselves as if each was in a process of its own."""

    def own_pid(host: str, pid: int, label: str, name: str = "", *more: object) -> str:
        return owner_text(host, int(name or "0", 16) % 10**6, label, name, *more)

    monkeypatch.setattr("snowredis.snowflake.lease.requests.owner_text", own_pid)
