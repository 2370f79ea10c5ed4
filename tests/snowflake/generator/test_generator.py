"""The generator on a manual clock and a pool in memory: no thread, no sleep, no Redis."""

import asyncio
import contextlib
import copy
import mmap
import pickle
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import ClockMovedBack
from snowredis.integrations.gunicorn import renew_foreign_locks
from snowredis.process.clock import SystemClock
from snowredis.process.fork import ForkGuard
from snowredis.settings import SETTINGS
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.lease import context
from snowredis.snowflake.lease.held import HeldLease, LeaseSlot
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import ClaimRequest, Reply, Request, WorkerStats
from snowredis.testing import ManualClock, MemoryPool, memory_pool
from tests.support.pools import new_pool
from tests.support.programs import finished
from tests.support.servers import RedisServer

TWO_WORKERS = Layout(worker_bits=1)
HOUR_MS = 3_600_000


def test_nothing_is_claimed_before_the_first_id_and_claim_claims_only_once(pool: MemoryPool) -> None:
    ids = pool.connect()
    before = ids.lease
    ids.next_id()
    lease = ids.lease
    assert (before, lease and lease.worker) == (None, 0)
    assert ids.claim() == ids.lease == lease


def test_ids_of_one_tick_count_up_and_then_the_next_tick_begins(pool: MemoryPool, clock: ManualClock) -> None:
    ids = pool.connect()
    made = [ids.next_id() for _ in range(1500)]
    assert made == sorted(set(made))
    assert [ids.decode(an_id).sequence for an_id in made] == [*range(1024), *range(476)]


@pytest.mark.parametrize("preset", ["twitter", "jd", "jd-seconds", "sonyflake", "discord", "js-safe", "game"])
def test_every_preset_makes_ids_that_decode_to_their_worker(pool: MemoryPool, clock: ManualClock, preset: str) -> None:
    layout = snowredis.layouts[preset]
    datacenter = layout.datacenters - 1
    ids = [pool.connect(layout=preset, datacenter=datacenter) for _ in range(3)]
    made: list[int] = []
    for _ in range(5):
        for worker, generator in enumerate(ids):
            batch = generator.next_ids(5)
            assert {layout.decode(i).worker for i in batch} == {worker}
            assert {layout.decode(i).datacenter for i in batch} == {datacenter}
            made += batch
        clock.advance(layout.tick_ms)
    assert len(set(made)) == len(made)


# --- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_last", [False, True])
def test_no_worker_of_a_layout_without_a_sequence_makes_the_ids_of_another(
    clock: ManualClock, worker_last: bool
) -> None:
    layout = Layout(
        backup_bits=0, worker_bits=1, sequence_bits=0, worker_last=worker_last, epoch_ms=clock.time_ns() // 1_000_000
    )
    pool = memory_pool(clock=clock)
    many = [pool.connect(layout=layout) for _ in range(2)]
    made = sorted(ids.next_id() for _ in range(4) for ids in many)
    assert made == sorted(set(made))
    assert made[0] > 0


def test_a_batch_of_0_is_empty_and_needs_no_lease(pool: MemoryPool) -> None:
    ids = pool.connect()
    assert ids.next_ids(0) == asyncio.run(ids.anext_ids(0)) == []
    assert ids.lease is None


@pytest.mark.parametrize("count", [-1, 1_000_001, 2.0, True, "7", None])
def test_a_batch_of_no_possible_size_is_refused(pool: MemoryPool, count: Any) -> None:
    ids = pool.connect()
    for make in (ids.next_ids, lambda count: asyncio.run(ids.anext_ids(count))):
        with pytest.raises(snowredis.ConfigError if type(count) is int else TypeError, match="from 0 to 1000000"):
            make(count)


def test_fill_writes_into_every_kind_of_int64_buffer(pool: MemoryPool) -> None:
    ids = pool.connect()
    numbers = array("q", bytes(8 * 3000))
    ids.fill(numbers)
    raw = bytearray(8 * 100)
    ids.fill(raw)
    ids.fill(memoryview(numbers)[:0])
    both = [*numbers, *array("q", bytes(raw))]
    assert both == sorted(set(both))


def test_fill_does_not_trust_what_others_write_into_its_buffer(pool: MemoryPool) -> None:
    made = 0

    class Scribbled(SnowflakeGenerator):
        __slots__ = ()

        def _fill_now(self, buffer: Any) -> Any:
            nonlocal made
            found = super()._fill_now(buffer)
            made += found[0]
            assert made <= 10_000, "it began again"
            # another thread, or a process that shares the memory: below every id, so each looks out of order
            buffer[:] = array("q", range(len(buffer), 0, -1))
            return found

    ids: Any = pool.connect()
    ids.__class__ = Scribbled
    ids.fill(array("q", bytes(8 * 10_000)))
    assert 0 < made <= ids.ids_made == 10_000


@pytest.mark.parametrize("released", [memoryview(bytearray(8)), mmap.mmap(-1, 4096)])
def test_fill_refuses_memory_that_is_gone(pool: MemoryPool, released: Any) -> None:
    released.release() if isinstance(released, memoryview) else released.close()
    with pytest.raises(snowredis.ConfigError, match=r"fill\(\) needs a buffer"):
        pool.connect().fill(released)


def test_a_shape_without_elements_is_filled_with_nothing(pool: MemoryPool) -> None:
    ids = pool.connect()
    ids.fill(memoryview(bytearray(8)).cast("q", (1, 1))[0:0])
    assert (ids.ids_made, ids.lease) == (0, None)


@pytest.mark.parametrize(
    "buffer", [bytes(16), bytearray(9), array("d", [0.0]), array("i", [0, 0]), [1, 2], memoryview(bytearray(32))[::2]]
)
def test_fill_refuses_what_it_cannot_fill(pool: MemoryPool, buffer: Any) -> None:
    with pytest.raises(snowredis.ConfigError, match=r"fill\(\) needs"):
        pool.connect().fill(buffer)


def test_a_batch_is_in_order_even_if_the_clock_goes_back_within_it(clock: ManualClock) -> None:
    class StepsBack(ManualClock):
        sleeps = 0

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.sleeps += 1
            if self.sleeps in (3, 7):
                self.step(-1000)

    stepping = StepsBack()
    ids = memory_pool(clock=stepping).connect()
    ids.claim()
    stepping.advance(HOUR_MS)
    batch = ids.next_ids(10_000)
    assert len(batch) == 10_000
    assert batch == sorted(set(batch))
    assert {ids.decode(i).backup for i in batch} == {2}


# --- the clock -------------------------------------------------------------------------------------


def test_a_clock_that_catches_up_again_stays_in_its_namespace(pool: MemoryPool, clock: ManualClock) -> None:
    ids = pool.connect()
    ids.claim()
    clock.advance(HOUR_MS)
    made = [ids.next_id()]
    clock.step(-1000)
    made.append(ids.next_id())
    clock.step(+1000)
    clock.advance(1)
    made += [ids.next_id() for _ in range(3000)]
    assert {ids.decode(i).backup for i in made[1:]} == {1}
    assert len(set(made)) == len(made)


def test_a_clock_behind_redis_is_harmless(pool: MemoryPool, clock: ManualClock) -> None:
    pool.connect().claim()
    clock.advance(HOUR_MS)
    clock.step(-HOUR_MS)
    ids = pool.connect()
    assert ids.decode(ids.next_id()).timestamp_ms == clock.time_ns() // 1_000_000
    clock.advance(40_000)
    assert ids.next_id() > 0


@pytest.mark.parametrize(
    ("options", "step_ms", "message"),
    [
        ({"clock_policy": "wait"}, -HOUR_MS, r"is 3(599|600)\d{3} ms behind the newest id"),
        ({}, -24 * 365 * HOUR_MS * 3, "before the layout's epoch"),
        ({}, HOUR_MS, r"is 3(599|600)\d{3} ms ahead of the clock of Redis"),
    ],
    ids=["behind", "before the epoch", "ahead"],
)
def test_a_process_whose_clock_allows_no_id_is_not_ready_says_how_far_it_is_off_and_recovers(
    pool: MemoryPool, clock: ManualClock, options: dict[str, Any], step_ms: int, message: str
) -> None:
    ids = pool.connect(**options)
    ready = [ids.ready]
    before = ids.next_id()
    for passed_ms in (0, step_ms, -step_ms):
        clock.step(passed_ms)
        ready.append(ids.ready)
    assert ready == [False, True, False, True]
    clock.step(step_ms)
    with pytest.raises(snowredis.SnowredisError, match=message):
        ids.next_id()
    clock.step(-step_ms)
    assert ids.next_id() > before


def test_a_process_that_has_to_claim_another_worker_id_is_ready_until_that_is_refused(
    pool: MemoryPool, clock: ManualClock
) -> None:
    ids, other = (pool.connect(layout=Layout(worker_bits=1, backup_bits=0)) for _ in range(2))
    for each in (ids, other):
        each.next_id()
    clock.step(-HOUR_MS)
    ready = [ids.ready]
    with pytest.raises(ClockMovedBack, match=r"is 3(599|600)\d{3} ms behind the newest id"):
        ids.next_id()
    # it may be available after some time
    for passed_ms in (0, 30_000):
        clock.advance(passed_ms)
        ready.append(ids.ready)
    assert ready == [True, False, True]


def test_a_layout_that_has_ended_is_refused_at_once(pool: MemoryPool) -> None:
    with pytest.raises(snowredis.LayoutError, match="used up since 2024"):
        pool.connect(layout="uid-generator")


def test_a_layout_that_ends_soon_is_warned_about(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    layout = Layout(timestamp_bits=35)
    late = ManualClock(layout.end_ms - 1000)
    memory_pool(clock=late).connect(layout=layout)
    assert "last only until" in caplog.text


def test_a_long_tick_is_not_left_before_it_ends_and_steps_of_the_clock_are_seen_in_it(
    pool: MemoryPool, clock: ManualClock
) -> None:
    ids = pool.connect(layout="game")
    first = ids.decode(ids.next_id())
    clock.advance(first.timestamp_ms + 10_000 - clock.time_ns() // 1_000_000)
    made = []
    for _ in range(9):
        made += ids.next_ids(3)
        clock.advance(1_000)
    parts = [ids.decode(i) for i in made]
    assert {p.tick for p in parts} == {first.tick + 1}
    assert [p.sequence for p in parts] == list(range(27))


# --- sequences -------------------------------------------------------------------------------------


def test_sequences_start_at_zero_on_a_test_clock_and_where_spreading_is_of_no_use(clock: ManualClock) -> None:
    spread: list[dict[str, Any]] = [
        {"sequence_start": "spread", "layout": layout}
        for layout in ("41/0/2/10/10;worker_last=1", "39/0/2/10/10;tick_ms=11")
    ]
    for options in ({}, *spread):
        ids = memory_pool(clock=clock).connect(**options)
        for _ in range(20):
            clock.advance(11)
            assert ids.decode(ids.next_id()).sequence == 0


# --- leases ----------------------------------------------------------------------------------------


def test_a_lost_lease_that_cannot_be_replaced_says_why(pool: MemoryPool, clock: ManualClock) -> None:
    one = Layout(worker_bits=0)
    # in an outage lane it would go on
    sleeper = pool.connect(layout=one, outage_reserve=0)
    sleeper.next_id()
    clock.advance(60_000)
    thief = pool.connect(layout=one, outage_reserve=0)
    thief.next_id()
    with pytest.raises(snowredis.LeaseLost, match="all 1 worker ids"):
        sleeper.next_id()
    thief.close()
    clock.advance(1)
    assert sleeper.next_id() > 0


def test_calls_share_the_time_for_which_a_full_pool_is_asked_again(
    pool: MemoryPool, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, patience_s = Layout(worker_bits=0), SETTINGS["claim_timeout"].default
    holder = pool.connect(layout=one, ttl=60)
    holder.next_id()
    late = pool.connect(layout=one, ttl=60)

    def refused_after_s() -> float:
        began = clock.monotonic()
        with pytest.raises(snowredis.PoolExhausted) as refused:
            late.next_id()
        assert refused.value.retry
        return round(clock.monotonic() - began, 3)

    assert refused_after_s() == patience_s
    # whoever waited for the first call does not wait again
    assert [refused_after_s() for _ in range(3)] == [0, 0, 0]
    said = f"all 1 worker ids are leased; waiting for a worker id, for {patience_s:g} s at most"
    assert caplog.text.count(said) == 1
    # after a silence, the pool gets another chance
    clock.advance(12_000)
    assert refused_after_s() == patience_s
    holder.close()
    assert late.next_id() > 0


@pytest.mark.parametrize(("steps_ms", "opened"), [((), "0000"), ((0,), "1000"), ((0, -60_000), "1100")])
def test_a_release_says_which_lanes_were_opened(
    pool: MemoryPool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, steps_ms: tuple[int, ...], opened: str
) -> None:
    ids = pool.connect()
    ids.claim()
    clock.advance(HOUR_MS)
    for step_ms in steps_ms:
        clock.step(step_ms)
        ids.next_id()
    (store,) = pool._stores.values()
    sent, ask = list[Any](), store.ask

    def recorded(request: Any) -> Any:
        sent.append(request)
        return ask(request)

    monkeypatch.setattr(store, "ask", recorded)
    ids.close()
    assert [request.opened for request in sent] == [opened]


# --- the end ---------------------------------------------------------------------------------------


class InterruptedClock(ManualClock):
    """Calls *then* once, after the next reading and before the caller has it."""

    then: Callable[[], object] | None = None

    def time_ns(self) -> int:
        now_ns = super().time_ns()
        then, self.then = self.then, None
        if then is not None:
            then()
        return now_ns


@pytest.mark.parametrize("passed_ms", [0, 1], ids=["in a tick", "opening a tick"])
def test_a_fork_or_a_closing_stops_a_call_that_is_about_to_take_an_id(passed_ms: int) -> None:
    clock = InterruptedClock()
    ids = memory_pool(clock=clock).connect()
    workers = [ids.decode(ids.next_id()).worker]
    for then in (ids._after_fork, ids.close):
        clock.advance(passed_ms)
        clock.then = then
        with contextlib.suppress(snowredis.GeneratorClosed):
            workers.append(ids.decode(ids.next_id()).worker)
    assert (workers, ids.closed) == ([0, 1], True)


def test_generators_refuse_to_be_copied(pool: MemoryPool) -> None:
    ids = pool.connect()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"two copies .*snowredis\.connect\(\) in each process"):
            attempt(ids)


def test_repr_says_pool_and_worker(pool: MemoryPool) -> None:
    ids = pool.connect(pool="orders")
    assert "no worker id yet" in repr(ids)
    ids.next_id()
    assert "worker 0" in repr(ids)
    ids.close()
    assert "closed" in repr(ids)


def test_a_suspended_generator_holds_nothing_and_claims_anew_when_it_is_resumed(pool: MemoryPool) -> None:
    ids, other = pool.connect(layout=TWO_WORKERS), pool.connect(layout=TWO_WORKERS)
    made = [ids.next_id()]
    ids.suspend()
    assert ids.lease is None
    with pytest.raises(snowredis.GeneratorClosed, match=r"resume\(\)"):
        ids.next_id()
    ids._beat()
    assert ids.lease is None
    made += other.next_ids(10)
    ids.resume()
    made += ids.next_ids(10)
    assert len(set(made)) == 21


# --- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("ttl", -1, "ttl must be seconds"),
        ("ttl", "30", "ttl must be seconds"),
        ("ttl", 1e9, "ttl must be seconds"),
        ("ttl", float("nan"), "ttl must be seconds"),
        ("pool", "a b", "pool must be 1 to 64 letters"),
        ("clock_policy", "hope", "backup, wait"),
        ("sequence_start", "one", "spread, zero"),
        ("max_wait_ms", -1, "0 or more"),
        ("claim_timeout", -1, "claim_timeout"),
        ("label", 7, "label must be a str"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name_and_what_would_do(
    pool: MemoryPool, option: str, value: Any, said: str
) -> None:
    options = {option: value}
    with pytest.raises(snowredis.ConfigError, match=said):
        snowredis.connect(pool, **options)


def test_another_layout_in_the_same_pool_is_refused_saying_the_difference(pool: MemoryPool) -> None:
    pool.connect(pool="p")
    with pytest.raises(snowredis.LayoutMismatch, match=r"41/0/2/10/10.*41/5/0/5/12"):
        pool.connect(pool="p", layout="twitter")


class FrozenClock(SystemClock):
    """The time of a test that has frozen it, as time-machine does."""

    def __init__(self) -> None:
        self.frozen_ns = time.time_ns() // 1_000_000 * 1_000_000

    def time_ns(self) -> int:
        return self.frozen_ns


def test_a_clock_that_stands_still_is_said_when_its_ids_are_used_up(server: RedisServer) -> None:
    name, clock = new_pool(server.url), FrozenClock()
    with snowredis.connect(server.url, pool=name, clock=clock) as ids:
        made = [ids.next_id() for _ in range(1024)]
        with pytest.raises(ClockMovedBack, match="has stood still for 10"):
            ids.next_id()
        with pytest.raises(ClockMovedBack) as caught:
            asyncio.run(ids.anext_id())
        assert caught.value.stopped
        clock.frozen_ns += 1_000_000
        made.append(ids.next_id())
        assert len(set(made)) == 1025


def test_what_the_clock_did_under_another_lease_is_not_reported_again(clock: ManualClock) -> None:
    ids = memory_pool(clock=clock).connect(clock=clock)
    ids.next_id()
    clock.step(-5_000)
    ids.next_id()
    assert ids._lifecycle.renewals.stats().clock_backs == 1
    ids.suspend()
    ids.resume()
    ids.next_id()
    assert ids._lifecycle.renewals.stats().clock_backs == 0
    assert sum(ids.counts.clock_backs.values()) == 1
    clock.step(-5_000)
    ids.next_id()
    assert ids._lifecycle.renewals.stats().clock_backs == 1


def test_a_with_block_claims_at_its_begin_and_leaves_nothing_if_that_fails(tmp_path: Path) -> None:
    with memory_pool().connect() as ids:
        assert ids.lease is not None
    refused = snowredis.connect(f"unix://{tmp_path}/no.sock")
    with pytest.raises(snowredis.StoreUnavailable), refused:
        raise AssertionError
    assert refused.closed


@pytest.mark.parametrize("call", ["ids.next_id()", "ids.claim()", "ids.next_ids(3)", "ids.__enter__()"])
def test_a_missing_redis_is_told_in_a_short_traceback(tmp_path: Path, call: str) -> None:
    program = f"import snowredis\nids = snowredis.connect('unix://{tmp_path}/no.sock')\n{call}"
    done = finished("-c", program)
    assert "StoreUnavailable: Redis at" in done.stderr
    assert done.stderr.count("\n") <= 30


def test_a_lock_of_another_kind_is_replaced_unless_it_may_guard_a_lease(pool: MemoryPool) -> None:
    """The kind changes if gevent patches threading in a process that imported the program before."""
    idle, busy = pool.connect(), pool.connect()
    busy.claim()
    # any type other than that of locks now
    foreign: Any = contextlib.nullcontext()
    own = busy._lock
    idle._lock = busy._lock = foreign
    renew_foreign_locks()
    assert type(idle._lock) is type(own)
    assert busy._lock is foreign
    busy._lock = own


# whether the first and the second attempt of each claim were certainly not sent
@pytest.mark.parametrize("unsent", [(False, False), (False, True), (True, False), (True, True)])
def test_a_claim_that_redis_may_have_is_sent_again_as_it_was(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch, unsent: tuple[bool, bool]
) -> None:
    tokens: list[str] = []

    def away(store: MemoryStore, request: ClaimRequest) -> Reply:
        tokens.append(request.token)
        error = snowredis.StoreUnavailable("memory", "no reply")
        error.is_unsent = unsent[(len(tokens) - 1) % 2]
        raise error

    monkeypatch.setattr(MemoryStore, "ask", away)
    ids = pool.connect()
    for _ in range(3):
        with pytest.raises(snowredis.StoreUnavailable) as refused:
            ids.claim()
        assert refused.value.is_unsent is all(unsent)
    assert (len(tokens), len(set(tokens))) == (6, 3 if all(unsent) else 1)


def test_a_claim_without_a_reply_is_withdrawn_once(pool: MemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clone that was made in the middle of suspend()."""
    sent, ask, is_lossy = [], MemoryStore.ask, True

    def lossy(store: MemoryStore, request: Request) -> Any:
        sent.extend([request.token] if isinstance(request, ClaimRequest) else [])
        reply = ask(store, request)
        if is_lossy:
            raise snowredis.StoreUnavailable("memory", "no reply")
        return reply

    monkeypatch.setattr(MemoryStore, "ask", lossy)
    ids = pool.connect()
    with pytest.raises(snowredis.StoreUnavailable):
        ids.claim()
    claims, is_lossy = len(sent), False
    ids._lease_manager.suspended = True
    for _ in range(3):
        with pytest.raises(snowredis.GeneratorClosed) as caught:
            ids.next_id()
        assert caught.value.suspended
    assert sent == [sent[0]] * (claims + 1)
    (store,) = pool._stores.values()
    assert [record.token_hash for record in store._records.values()] == [""]


def test_resume_does_not_wait_for_a_thread_that_waits_for_redis(pool: MemoryPool) -> None:
    ids = pool.connect()
    assert ids.next_id()
    ids.suspend()
    resuming = threading.Thread(target=ids.resume, daemon=True)
    # as a call in that thread, which found the generator suspended
    with ids._lock:
        resuming.start()
        resuming.join(10)
        assert not resuming.is_alive()
    assert ids.next_id()


def test_a_lease_that_is_granted_while_the_generator_is_closed_is_released(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, hold = pool.connect(), LeaseSlot.hold

    def hold_and_close(slot: LeaseSlot, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        kept = hold(slot, held, stats, fresh=fresh)
        # as in a signal handler, which cannot release it: this thread is talking to the store
        ids.close()
        return kept

    monkeypatch.setattr(LeaseSlot, "hold", hold_and_close)
    # a heartbeat without a lease claims one
    ids._beat()
    assert ids._lease_manager.closed
    (store,) = pool._stores.values()
    assert [record.token_hash for record in store._records.values()] == [""]


@pytest.mark.parametrize("why", ["suspended", "closed", "forked"])
def test_a_step_makes_no_id_once_the_process_may_make_none(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ids = pool.connect()
    ids.next_id()
    if why == "forked":
        # as in a child that a signal handler forks at the end of the step
        monkeypatch.setattr(ForkGuard, "is_still", lambda guard, generation: False)
    else:
        {"suspended": ids.suspend, "closed": ids.close}[why]()
    assert ids._slow_path._try_step()[0] == 0


def test_close_says_which_worker_id_it_could_not_release_beside_a_thread_that_waits_for_redis(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(context, "LOCK_LIMIT_S", 0.05)
    ids, waits, replied = snowredis.connect(pool), threading.Event(), threading.Event()
    ids.claim()

    def talk() -> None:
        waits.set()
        replied.wait(30)

    thread = threading.Thread(target=ids._lifecycle._leases.conversation.run, args=(talk,))
    thread.start()
    waits.wait(30)
    ids.close()
    replied.set()
    thread.join()
    assert "could not release worker id 0; it is available again when its lease ends" in caplog.text
