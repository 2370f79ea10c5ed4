"""WorkerPool: events, states, and what it refuses."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError, LayoutMismatch, PoolNotFound
from snowredis.monitor.conditions import answers, status_of
from snowredis.monitor.doctor import diagnose
from snowredis.monitor.history import parse_event
from snowredis.monitor.lease import lease_of
from snowredis.snowflake.protocol.open import pool_config
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from snowredis.testing import memory_pool
from snowredis.worker_pool import WorkerPool
from tests.monitor.conftest import Scripted
from tests.support.fake_pool import FakePool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def pool(server: RedisServer, pool_name: str) -> Iterator[WorkerPool]:
    made = WorkerPool(server.url, pool_name)
    made.create(PoolConfig(name=pool_name))
    yield made
    made.close()


def connect(server: RedisServer, pool: WorkerPool, label: str) -> snowredis.SnowflakeGenerator:
    return snowredis.connect(server.url, pool=pool.name, label=label)


def test_a_pool_of_another_format_is_refused_and_not_shown_as_empty(server: RedisServer, pool: WorkerPool) -> None:
    key = pool_keys(pool.name)[0]
    stored = str(server.client().hget(key, "signature"))
    server.client().hset(key, "signature", re.sub(r"format=\d+", "format=2", stored))
    for read in (pool.info, pool.workers, pool.snapshot):
        with pytest.raises(LayoutMismatch, match="is of another version: it is stored in format 2"):
            read()
    status = pool.read().status
    (condition,) = status.conditions
    assert (condition.code, condition.level, status.headline) == ("unread", "unknown", "not known")
    found = [each for each in diagnose(server.url, pool.name) if each.subject == f"pool {pool.name}"]
    assert [(each.code, each.level) for each in found] == [("unread", "unknown")]
    assert pool.name in pool.pools()


def test_workers_are_shown_while_another_program_uses_the_key_of_the_events(scripted: Scripted) -> None:
    pool, holder = scripted(ttl_ms=500, max_clock_lead_ms=10, failover_slack_ms=10)
    living = holder()
    pool.client.set(pool_keys(pool.name)[2], "foreign")
    living.claim()
    status, (lease,) = pool.read().status, pool.snapshot().leases
    assert (lease.state, status.level, [each.code for each in status.conditions]) == ("alive", "warning", ["unread"])
    assert pool_keys(pool.name)[2] in status.conditions[0].text
    assert answers(pool.snapshot())[0].answer != "unknown"
    eventually(lambda: answers(pool.snapshot())[0].answer == "unknown", "the end of the lease")


def test_a_record_that_another_program_wrote_is_not_passed_over(scripted: Scripted) -> None:
    pool, holder = scripted(ttl_ms=500, max_clock_lead_ms=10, failover_slack_ms=10)
    lost, other = holder(), holder()
    for each in (lost, other):
        each.claim()
    pool.client.hset(pool_keys(pool.name)[0], "w:0", "hello")
    assert [worker.worker for worker in pool.workers()] == [1]
    (condition,) = status_of(pool.snapshot()).conditions
    assert (condition.level, condition.code, condition.count) == ("warning", "unread", 1)
    text = "another program has written the records of 1 worker id (0): whether they are leased is not known"
    assert condition.text == text
    # its lease has ended, and its holder may make ids in the outage lane
    time.sleep(0.3)
    other.ask_renew()
    time.sleep(0.3)
    other.ask_renew()
    snapshot = pool.snapshot()
    assert [each.code for each in status_of(snapshot).conditions] == ["unread"]
    assert [each.answer for each in answers(snapshot) if each.question == "restart"] == ["unknown"]


def test_events_come_the_oldest_first_and_in_parts(
    server: RedisServer, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowredis.monitor.history.PAGE", 3)
    for number in range(4):
        connect(server, pool, f"n{number}").close()
        with connect(server, pool, f"n{number}") as ids:
            ids.next_id()
    events = pool.events()
    assert [event.kind for event in events] == ["floor", *["claimed", "released"] * 4]
    assert events == pool.events(newest=100)
    assert pool.events(newest=2) == events[-2:]
    assert pool.events(newest=0) == []
    assert pool.events(since=events[3].id) == events[4:]


@pytest.mark.parametrize(
    ("age_ms", "left_ms", "state"),
    [(0, 30_000, "alive"), (19_999, 10_001, "alive"), (20_000, 10_000, "silent"), (29_999, 1, "silent")]
    + [(30_000, 0, "expired")],
)
def test_the_state_of_a_lease_follows_its_last_heartbeat(age_ms: int, left_ms: int, state: str) -> None:
    now_ms = 10**12
    record = LeaseRecord("ab", "", "", now_ms + left_ms, now_ms + left_ms, renewed_ms=now_ms - age_ms)

    def state_of(record: LeaseRecord, *, is_sure: bool = True) -> str:
        return lease_of(0, record, now_ms, 30_000, 10**15, is_sure=is_sure).state

    assert state_of(record) == state
    assert state_of(record, is_sure=False) == (state if state == "alive" else "silent")
    assert state_of(record._replace(token_hash="")) == "released"
    refused = record._replace(owner='{"host": "a", "refused": "ClockMovedBack"}')
    assert state_of(refused) == ("no-ids" if state == "alive" else state)


def test_a_pool_that_nobody_made_and_one_in_memory_are_refused(fake: FakePool) -> None:
    with pytest.raises(PoolNotFound):
        fake.view.info()
    with pytest.raises(ConfigError, match=r"url cannot be of class MemoryPool\. Pass the URL of a Redis, such as"):
        WorkerPool(memory_pool())


@pytest.mark.parametrize("settings", [{}, {"layout": "41/2/2/8/10", "datacenter": 3, "ttl": 7.5}])
def test_the_options_of_a_pool_make_its_signature_again(fake: FakePool, settings: dict[str, Any]) -> None:
    fake.connect(**settings)
    info = fake.view.info()
    assert pool_config(info.options | {"pool": "test"}) == info.config


def test_entries_that_no_script_wrote_are_left_out() -> None:
    good = {
        b"event": b"lost",
        b"worker": b"1",
        b"owner": b'{"host":"\xff"}',
        b"from": b"0",
        b"until": b"x",
        b"at": b"5",
    }
    event = parse_event(b"1-0", good)
    assert event is not None
    assert (event.kind, event.owner.host, event.until_ms) == ("lost", "\ufffd", 0)
    for name, value in ((b"event", b"party"), (b"worker", b"one"), (b"at", b"")):
        assert parse_event(b"1-0", {**good, name: value}) is None
