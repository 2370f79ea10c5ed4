"""A lease that ends without a release is seen from that moment on, by everybody who looks, and only once.

A process that died is told from one that is silent, and from one that ended in order.
"""

import time
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.monitor import history
from snowredis.monitor.conditions import status_of
from snowredis.monitor.lease import Lease
from snowredis.snowflake.protocol.messages import Renewed
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.record import EventKind
from snowredis.testing import ManualClock, memory_pool
from snowredis.worker_pool import WorkerPool
from tests.monitor.conftest import Scripted
from tests.support.fake_pool import FakePool
from tests.support.records import change_record, record_of
from tests.support.servers import RedisServer

TTL_MS = 30_000


@pytest.fixture
def seen(fake: FakePool) -> WorkerPool:
    return fake.view


def begin(ids: snowredis.SnowflakeGenerator, clock: ManualClock) -> None:
    """Make an id, and send a heartbeat."""
    ids.next_id()
    clock.advance(1)
    ids._beat()


def ended(seen: WorkerPool) -> list[Lease]:
    """All leases that ended without a release."""
    return [*seen.snapshot().ended]


def next_expiries(seen: WorkerPool, after: list[str]) -> list[int]:
    """Return the worker ids of the expiries after the event *after*, which is the last one of the pool then."""
    new = seen.events(since=after[0])
    after[0] = new[-1].id if new else after[0]
    return [event.worker for event in new if event.kind == EventKind.EXPIRED]


@pytest.mark.usefixtures("each_generator_is_a_process")
def test_a_lease_that_expired_is_seen_at_once_and_is_the_same_when_a_script_writes_it(
    clock: ManualClock, fake: FakePool, seen: WorkerPool
) -> None:
    dying = [fake.connect(label=f"w{number}") for number in range(3)]
    for ids in dying:
        ids.next_id()
    clock.advance(1)
    for ids in dying:
        ids._beat()
    after = ["0"]
    assert next_expiries(seen, after) == []
    clock.advance(TTL_MS - 1)
    assert ended(seen) == []
    assert status_of(seen.snapshot()).level == "critical"
    clock.advance(1)
    leases = ended(seen)
    assert [(each.worker, each.label, each.state) for each in leases] == [(n, f"w{n}", "expired") for n in range(3)]
    assert {each.end_ms for each in leases} == {clock.server_time_ms()}
    assert {each.renewed_ms for each in leases} == {clock.server_time_ms() - TTL_MS}

    # another process runs a script
    clock.advance(5_000)
    heir = fake.connect(label="heir")
    begin(heir, clock)
    written = ended(seen)
    assert [(each.worker, each.end_ms, each.ids_until_ms, each.ids_made) for each in written] == [
        (each.worker, each.end_ms, each.ids_until_ms, each.ids_made) for each in leases
    ]
    assert seen.info().expired == 3
    assert next_expiries(seen, after) == [0, 1, 2]
    assert next_expiries(seen, after) == []

    # all may make ids until their outage lanes end. By then the end of their leases is a day old
    clock.advance(3_600_000)
    assert len(ended(seen)) == 4
    assert {condition.code for condition in status_of(seen.snapshot()).conditions} == {"no-renewals"}
    clock.advance(24 * 3_600_000)
    assert ended(seen) == []


def test_a_process_that_returns_is_not_among_those_that_ended(
    clock: ManualClock, fake: FakePool, seen: WorkerPool
) -> None:
    paused = fake.connect(label="paused")
    begin(paused, clock)
    clock.advance(TTL_MS + 1_000)
    assert len(ended(seen)) == 1
    assert paused.next_id()
    info = seen.info()
    assert (ended(seen), info.expired, info.returned, info.used) == ([], 1, 1, 1)
    assert [event.kind for event in seen.events()] == ["floor", "claimed", "expired", "returned"]
    assert seen.events()[-1].ended_ms == clock.server_time_ms() - 1_000
    paused.close()
    assert (ended(seen), seen.info().died) == ([], 0)


def test_a_process_whose_renewal_is_refused_is_alive(clock: ManualClock, fake: FakePool, seen: WorkerPool) -> None:
    paused = fake.connect(layout=Layout(worker_bits=0), label="paused", outage_reserve=0)
    begin(paused, clock)
    clock.advance(TTL_MS + 1_000)
    heir = fake.connect(layout=Layout(worker_bits=0), label="heir", outage_reserve=0)
    heir.next_id()
    assert [each.label for each in ended(seen)] == ["paused"]
    with pytest.raises(snowredis.LeaseLost):
        paused.next_id()
    assert [event.kind for event in seen.events()][-2:] == ["claimed", "lost"]
    assert ended(seen) == []
    # it can die later, too
    heir.close()
    begin(paused, clock)
    clock.advance(TTL_MS + 1_000)
    assert [each.label for each in ended(seen)] == ["paused"]


def test_a_generator_that_claims_again_takes_its_death_back(
    clock: ManualClock, fake: FakePool, seen: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two that describe themselves alike, as in two containers
    both = [fake.connect(label="web") for _ in range(2)]
    for ids in both:
        begin(ids, clock)

    def refuse(*_: object) -> None:
        raise StoreUnavailable("here", "gone")

    with monkeypatch.context() as patched:
        patched.setattr(both[0]._lease_manager.store, "ask", refuse)
        both[0].suspend()
    clock.advance(TTL_MS + 1_000)
    assert len(ended(seen)) == 2
    both[0].resume()
    begin(both[0], clock)
    assert "lost" not in [event.kind for event in seen.events()]
    assert len(ended(seen)) == 1
    # each dies by itself
    clock.advance(TTL_MS + 1_000)
    assert len(ended(seen)) == 2


def test_a_forked_child_does_not_take_the_death_of_its_parent_back() -> None:
    manager = memory_pool().connect()._lease_manager
    parent = manager._owner()
    assert parent == manager._owner()
    manager.after_fork()
    assert manager._owner() != parent


@pytest.mark.usefixtures("each_generator_is_a_process")
@pytest.mark.parametrize(("failover_slack", "heartbeat_ms"), [(0, TTL_MS // 3), (18, TTL_MS // 6)])
def test_leases_that_ended_in_an_outage_are_not_critical_until_their_workers_had_time_to_return(
    clock: ManualClock,
    fake: FakePool,
    seen: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    failover_slack: int,
    heartbeat_ms: int,
) -> None:
    seen._clock_ms = clock.server_time_ms
    fleet = [fake.connect(outage_reserve=0, failover_slack=failover_slack) for _ in range(4)]
    for ids in fleet:
        begin(ids, clock)
    assert seen.read().status.level == "ok"

    def refuse() -> None:
        raise StoreUnavailable("here", "gone")

    with monkeypatch.context() as patched:
        patched.setattr(seen, "snapshot", refuse)
        seen.read()
    clock.advance(TTL_MS + 1_000)
    reading = seen.read()
    assert [condition.code for condition in reading.status.conditions] == ["silent"]
    assert (reading.status.level, reading.status.headline) == ("warning", "4 silent")
    for ids in fleet[:3]:
        ids.next_id()
    # the fourth does not return within two heartbeats
    clock.advance(heartbeat_ms)
    for ids in fleet[:3]:
        ids._beat()
    clock.advance(heartbeat_ms)
    reading = seen.read()
    assert reading.snapshot is not None
    assert (len(reading.snapshot.ended), reading.snapshot.is_back) == (1, False)
    assert reading.status.headline == "1 silent"


def test_a_lease_whose_renewal_redis_may_have_forgotten_is_silent_and_not_expired(
    server: RedisServer, scripted: Scripted
) -> None:
    seen, holder = scripted()
    first, second = (holder().claim() for _ in range(2))
    # as after a restart from an old snapshot, in which the second lease had ended
    change_record(server.client(), seen.name, 1, lease_end_ms=seen.info().now_ms)
    server.client().hset(pool_keys(seen.name)[0], "run_id", "0123456789abcdef")
    assert isinstance(first.ask_renew(), Renewed)
    snapshot = seen.snapshot()
    assert [(each.worker, each.state) for each in snapshot.leases] == [(0, "alive"), (1, "silent")]
    assert [each.state for each in seen.workers(alive_only=False)] == ["alive", "silent"]
    status = status_of(snapshot)
    assert {condition.code for condition in status.conditions} == {"floor", "silent"}
    assert "another server process" in status.conditions[0].text
    # it is adopted, so it never was dead
    assert isinstance(second.ask_renew(), Renewed)
    snapshot = seen.snapshot()
    assert (snapshot.ended, snapshot.info.used) == ((), 2)
    assert "expired" not in [event.kind for event in seen.events()]


@pytest.mark.parametrize("spread", [1, 1_000])
def test_many_expiries_are_written_in_steps_and_shown_once(
    server: RedisServer, scripted: Scripted, spread: int
) -> None:
    """*spread*: over how many ms the ends of the leases are distributed."""
    seen, holder = scripted()
    count, living = 250, holder().claim()
    assert isinstance(living.ask_renew(), Renewed)
    client, (key, leases, _) = server.client(), pool_keys(seen.name)
    # some ids of a pool with records like the first one, whose leases ended
    record, now_ms = record_of(client, seen.name, 0), seen.info().now_ms
    swept_ms = now_ms - 2_000
    ends_ms = {number: now_ms - number % spread for number in range(1, count + 1)}
    for number, end_ms in ends_ms.items():
        client.hset(key, f"w:{number}", record._replace(lease_end_ms=end_ms).pack())
    client.zadd(leases, {str(number): end_ms for number, end_ms in ends_ms.items()})
    client.hset(key, mapping={"records": count + 1, "next": count + 1, "swept": swept_ms})
    shown = [len(ended(seen))]
    while int(client.hget(key, "swept") or 0) < now_ms:
        assert isinstance(living.ask_renew(), Renewed)
        shown.append(len(ended(seen)))
        assert len(shown) < 10
        # in a busy pool, not each script looks for ended leases
        time.sleep(0.25)
    assert shown == [count] * len(shown)
    assert seen.info().expired == count
    assert {each.worker: each.end_ms for each in ended(seen)} == ends_ms
    assert len([event for event in seen.events() if event.kind == EventKind.EXPIRED and event.id]) == count


def test_older_events_are_read_once_the_pool_counts_an_end(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    read, since_ms = history.read_entries, list[int]()

    def noted(*args: Any, since: str, **which: Any) -> list[history.Entry]:
        since_ms.append(int(since))
        return read(*args, since=since, **which)

    seen, holder = scripted()
    lost = holder().claim()
    monkeypatch.setattr(history, "read_entries", noted)
    info = seen.snapshot().info
    assert (info.claims, since_ms) == (1, [info.now_ms])
    # as a process does that finds another one dead
    lost.release(reclaimed=True)
    snapshot = seen.snapshot()
    assert since_ms[1:] == [snapshot.info.now_ms - snapshot.info.config.outage_reserve_ms]
    assert [(each.worker, each.state) for each in snapshot.ended] == [(lost.worker, "died")]
    # a loss takes the counts along
    monkeypatch.undo()
    seen.client.delete(pool_keys(seen.name)[0])
    holder().ask_claim()
    assert [each.worker for each in ended(seen)] == [lost.worker]


@pytest.mark.parametrize(("reserve_s", "level", "left"), [(0, "critical", "23.0 s"), (7200, "warning", "2.0 h")])
def test_what_could_not_be_read_is_stale_and_says_for_how_long_ids_last(
    clock: ManualClock, fake: FakePool, monkeypatch: pytest.MonkeyPatch, reserve_s: int, level: str, left: str
) -> None:
    seen = fake.view
    seen._clock_ms = clock.server_time_ms
    assert (seen.read().status.level, seen.read().snapshot) == ("unknown", None)
    ids = fake.connect(outage_reserve=reserve_s)
    ids.next_id()
    before = seen.read()
    assert (before.status.level, before.status.stale_since_ms) == ("ok", None)
    clock.advance(4_000)
    failed_ms = clock.server_time_ms()

    def refuse() -> None:
        raise StoreUnavailable("here", "gone")

    with monkeypatch.context() as patched:
        patched.setattr(seen, "snapshot", refuse)
        assert seen.read().status.level == level
        clock.advance(2_500)
        away = seen.read()
    assert away.snapshot is not None
    assert before.snapshot is not None
    assert away.snapshot.info == before.snapshot.info
    # a state of that time would look like a state of now
    assert [each.state for each in away.snapshot.living] == ["silent"]
    assert away.status.stale_since_ms == failed_ms
    (condition,) = away.status.conditions
    assert (condition.code, condition.count) == ("redis-unavailable", 1)
    assert f"ids for about {left} more" in condition.text
    assert seen.read().status.stale_since_ms is None
