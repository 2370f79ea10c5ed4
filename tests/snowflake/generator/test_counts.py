"""The counters of a generator, for metrics."""

import asyncio
from typing import Any

import pytest

import snowredis
from snowredis.snowflake.protocol.messages import WorkerStats
from snowredis.testing import ManualClock, MemoryPool


@pytest.mark.parametrize("coroutine", [False, True])
def test_waits_at_the_ceiling_are_counted_with_their_time(pool: MemoryPool, coroutine: bool) -> None:
    ids = pool.connect(layout="41/0/2/10/4")
    asyncio.run(ids.anext_ids(16 * 5)) if coroutine else ids.next_ids(16 * 5)
    assert ids.counts.waits["ceiling"] == 4
    assert coroutine or ids.counts.wait_s["ceiling"] == pytest.approx(0.004, abs=0.001)


def test_steps_back_use_up_the_namespaces_and_then_another_worker_id_and_each_is_counted_apart(
    pool: MemoryPool, clock: ManualClock
) -> None:
    # the highest of the four namespaces is for outages
    ids = pool.connect(layout="41/0/2/1/10")
    made = [ids.next_id()]
    expected = {"wait": 0, "namespace": 0, "worker": 0, "refusal": 0}
    for step, back_ms in zip(("wait", *["namespace"] * 2, "worker", *["namespace"] * 2), (5, *[100] * 5), strict=True):
        clock.step(-back_ms)
        made.append(ids.next_id())
        expected[step] += 1
        assert ids.counts.clock_backs == expected
    lanes = [(0, 0), *[(worker, backup) for worker in (0, 1) for backup in range(3)]]
    assert [(parts.worker, parts.backup) for parts in map(ids.decode, made)] == lanes
    assert len(set(made)) == len(made)
    assert ids.counts.claims == 2
    # every lane of the pool was used at later times
    clock.step(-100)
    with pytest.raises(snowredis.ClockMovedBack):
        ids.next_id()
    assert ids.counts.clock_backs == expected | {"refusal": 1}


def test_a_wait_of_many_naps_is_counted_once(pool: MemoryPool, clock: ManualClock) -> None:
    ids = pool.connect(clock_policy="wait", max_wait_ms=5_000)
    for times in (1, 2):
        ids.next_id()
        clock.step(-2_000)
        ids.next_id()
        assert ids.counts.clock_backs["wait"] == ids.counts.waits["clock"] == times
        assert ids.counts.wait_s["clock"] == pytest.approx(2 * times, abs=0.01)


def test_a_reply_that_was_late_makes_no_clock_off(
    pool: MemoryPool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after an outage of Redis, a request waits, and its reply shows the time of its end."""
    ids = pool.connect()
    ids.next_id()
    ask = ids._lease_manager.store.ask

    def late(request: Any) -> Any:
        clock.advance(1_800)
        return ask(request)

    monkeypatch.setattr(ids._lease_manager.store, "ask", late)
    assert ids._lease_manager.send_renewal(WorkerStats())
    assert ids.clock_reading.offset_ms == 0
    # a clock that is really off by more than that shows at once, to the precision of the reply
    clock.step(60_000)
    assert ids._lease_manager.send_renewal(WorkerStats())
    assert ids.clock_reading.offset_ms == pytest.approx(60_000, abs=1_800)
    clock.step(-60_000)
    # a Redis with another clock, as after a failover
    monkeypatch.undo()
    monkeypatch.setattr(clock, "server_time_ms", lambda: clock.time_ns() // 1_000_000 + 5_000)
    assert ids._lease_manager.send_renewal(WorkerStats())
    assert ids.clock_reading.offset_ms == -5_000


def test_a_child_counts_anew(pool: MemoryPool) -> None:
    ids = pool.connect()
    ids.next_id()
    ids._after_fork()
    assert ids.counts.claims == 0
