"""Interruptions at bad moments: forks in the middle of a call, suspensions, a thread's own signal handlers.

tests/lab/interrupts looks at every moment; here each way that once went wrong has a test of its own.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis.cli.fleet import StepClock
from snowredis.core.lanes import SEALED, ClockRules
from snowredis.core.layout import Layout
from snowredis.errors import ClockSkewed, GeneratorClosed, StoreUnavailable
from snowredis.process.fork import ForkGuard
from snowredis.snowflake.crash.record import CrashRecord
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import NO_TERMS, ClaimRequest, ReleaseRequest, RenewRequest, Request, Store
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.testing import ManualClock, MemoryPool
from snowredis.worker_pool import WorkerPool
from tests.lab.interrupts.points import Points
from tests.support.lua_store import LuaStore
from tests.support.programs import run
from tests.support.servers import RedisServer


def test_a_generator_can_be_made_in_a_signal_handler_that_came_while_one_is_made() -> None:
    run("tests.snowflake.generator.programs.generator_in_a_signal_handler", timeout_s=20)


class Unanswered(MemoryStore):
    """Grants every claim and loses the reply while ``lossy`` is set; records the requests."""

    def __init__(self, *args: Any, lossy: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lossy = lossy
        self.claims: list[Any] = []
        self.renewals: list[Any] = []
        self.releases: list[Any] = []

    def ask(self, request: Any) -> Any:
        sent = {ClaimRequest: self.claims, RenewRequest: self.renewals, ReleaseRequest: self.releases}
        sent[type(request)].append(request)
        answer = super().ask(request)
        if self.lossy and isinstance(request, ClaimRequest):
            raise StoreUnavailable(self.where, "the answer was lost")
        return answer


def generator_on(store: Store, clock: ManualClock, **options: Any) -> SnowflakeGenerator:
    return SnowflakeGenerator(store, clock=clock, guard=ForkGuard(), **options)


@pytest.mark.parametrize("when", ["suspend", "resume"])
def test_a_claim_that_was_not_answered_is_not_repeated_after_a_suspension(when: str, clock: ManualClock) -> None:
    """Two clones of a machine that was suspended would repeat it alike, and be given one lease."""
    store = Unanswered(PoolConfig(name="lossy"), clock.server_time_ms, lossy=True)
    ids = generator_on(store, clock)
    if when == "resume":
        # a handler suspended it in the middle of the claim, which went on afterwards
        ids.suspend()
        ids._lease_manager.slot.set_asked("5a" * 16, "{}")
    else:
        with pytest.raises(StoreUnavailable):
            ids.next_id()
        ids.suspend()
    store.lossy = False
    before = {request.token for request in store.claims} | {"5a" * 16}
    store.claims.clear()
    ids.resume()
    ids.next_id()
    assert [request.token in before for request in store.claims] == [False]


@pytest.mark.parametrize(("where", "name"), [(Unanswered, "ask"), (CrashRecord, "write")], ids=["asked", "recorded"])
def test_a_claim_during_which_it_was_suspended_is_void_and_released(
    where: type, name: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Unanswered(PoolConfig(name="late"), clock.server_time_ms)
    ids = generator_on(store, clock)
    method = getattr(where, name)

    def suspended_meanwhile(self: Any, argument: Any) -> Any:
        result = method(self, argument)
        if isinstance(argument, ClaimRequest) or getattr(argument, "terms", NO_TERMS) != NO_TERMS:
            ids.suspend()
            ids.resume()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(where, name, suspended_meanwhile)
        answered_late = ids._lifecycle.claim()
    assert (answered_late.replaced, ids.lease) == (None, None)
    assert [request.token for request in store.releases] == [request.token for request in store.claims]
    assert ids.next_id() > 0
    assert len({request.token for request in store.claims}) == 2


@pytest.mark.parametrize("ends", ["suspend", "close"])
def test_no_ids_are_left_of_a_lease_that_could_not_be_detached(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread talks to Redis, and a third, which saw no suspension yet, publishes a range after the seal."""
    clock = ManualClock()
    ids = generator_on(MemoryStore(PoolConfig(name="busy"), clock.server_time_ms), clock)
    ids.next_id()
    lifecycle = ids._lifecycle
    release = lifecycle.release

    def then_the_third_thread() -> None:
        release()
        clock.advance(1)
        assert ids._allocator.advance(only_claim=False)[0] > 0

    monkeypatch.setattr(lifecycle, "release", then_the_third_thread)

    def in_a_conversation() -> None:
        getattr(ids, ends)()
        monkeypatch.setattr(lifecycle, "release", release)
        # a clone of this machine would make the same ids
        assert ids._id_now() == 0
        with pytest.raises(GeneratorClosed):
            ids.next_id()

    ids._lease_manager.conversation.run(in_a_conversation)
    if ends == "suspend":
        ids.resume()
        assert ids.next_id() > 0


@pytest.mark.parametrize("name", ["suspend", "resume"])
def test_a_suspension_in_the_middle_of_another_leaves_no_generator_that_never_claims(name: str) -> None:
    """Ids that are not refused, but no worker id that may be claimed, would be a wait without an end."""
    clock = ManualClock()
    ids = generator_on(MemoryStore(PoolConfig(name="twice"), clock.server_time_ms), clock)

    def suspend_and_resume() -> None:
        ids.suspend()
        ids.resume()

    for at in range(60):
        ids.suspend()
        with Points({at: suspend_and_resume}):
            getattr(ids, name)()
        ids._lease_manager.suspended or ids._lifecycle.claim()
        assert ids._lease_manager.suspended is (ids.lease is None)


def test_a_lease_that_was_used_is_never_released_as_unused(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """Another thread makes an id as soon as the lease is there, and suspends the generator while Redis is away."""
    store = Unanswered(PoolConfig(name="used"), clock.server_time_ms)
    ids = generator_on(store, clock)
    lease_manager, ask = ids._lease_manager, store.ask
    conversation = lease_manager.conversation
    run_conversation = conversation.run

    def away(request: Any) -> Any:
        raise StoreUnavailable(store.where, "away")

    def then_the_other_thread(talk: Callable[..., Any], *args: Any) -> Any:
        result = run_conversation(talk, *args)
        if talk != lease_manager.send_claim:
            return result
        monkeypatch.setattr(conversation, "run", run_conversation)
        ids.next_id()
        monkeypatch.setattr(store, "ask", away)
        ids.suspend()
        monkeypatch.setattr(store, "ask", ask)
        return result

    monkeypatch.setattr(conversation, "run", then_the_other_thread)
    ids._lifecycle.claim()
    assert store.releases == []


def test_a_lease_that_is_handed_over_in_a_handler_gets_no_block_from_the_frame_below(clock: ManualClock) -> None:
    """That frame read the lease and what is current, and goes on to publish the first block of the lease."""
    store = MemoryStore(PoolConfig(name="over"), clock.server_time_ms)
    ids = generator_on(store, clock)
    ids.claim()
    (current, _, _), old = ids._position, ids._lease_manager.held
    assert old is not None
    ids._lifecycle.claim(instead_of=old.serial)
    assert not ids._supersede(current, SEALED, current._replace(state=None))
    assert ids.decode(ids.next_id()).worker != old.lease.worker


@pytest.mark.parametrize("asks", ["renewal", "claim"])
def test_a_holder_that_is_told_of_other_settings_has_lost_its_lease_at_once(server: RedisServer, asks: str) -> None:
    name, layout = f"shorter-{asks}", Layout(worker_bits=4, sequence_bits=10, backup_bits=0)
    made = WorkerPool(server.url, name)
    made.create(PoolConfig(name=name, layout=layout, ttl_ms=20_000))
    clock = StepClock()
    with snowredis.connect(server.url, pool=name, ttl=20, layout=layout, clock=clock) as ids:
        ids.next_id()
        # Redis lost it, and a person creates it with other settings
        server.client().delete(*pool_keys(name))
        made.create(PoolConfig(name=name, layout=layout, ttl_ms=6_000))
        if asks == "renewal":
            ids._beat()
        else:
            # beyond the tolerance, so that another worker id is asked for
            clock.step(-60_000)
            with pytest.raises(snowredis.LayoutMismatch, match="ttl"):
                ids.next_id()
        assert ids.lease is None
        assert ids.counts.leases_lost == 1
        with pytest.raises(snowredis.LayoutMismatch, match="ttl"):
            ids.next_id()
    made.close()


def test_ids_that_are_borrowed_up_to_the_end_of_the_reservation_wait_for_a_renewal() -> None:
    clock, rules = ManualClock(), ClockRules(max_ahead_ms=1_000)
    layout = Layout(worker_bits=2, sequence_bits=2)
    store = MemoryStore(PoolConfig(name="ahead", layout=layout, ttl_ms=1000), clock.server_time_ms)
    ids = generator_on(store, clock, rules=rules)
    began_ms = clock.server_time_ms()
    made = ids.next_ids(3000 * 4)
    assert made == sorted(set(made))
    # 3,000 ticks of 1 ms, a second ahead at the most
    assert 1_900 <= clock.server_time_ms() - began_ms <= 3_100


def test_a_worker_id_whose_next_tick_is_later_than_a_floor_can_be_claimed(pool: MemoryPool, clock: ManualClock) -> None:
    """A pool of one worker id, and ticks that are longer than the ttl."""
    settings: dict[str, Any] = {"layout": replace(Layout(), backup_bits=0, worker_bits=0, tick_ms=10_000), "ttl": 1.0}
    with pool.connect(**settings) as ids:
        before = ids.next_id()
    again = pool.connect(**settings)
    assert again.next_id() > before


def test_a_host_whose_clock_is_far_behind_asks_redis_now_and_then_only(clock: ManualClock) -> None:
    asked = 0

    class Counting(LuaStore):
        def ask(self, request: Request) -> Any:
            nonlocal asked
            asked += 1
            return super().ask(request)

    # the floor of a pool that Redis may have forgotten lies ahead, and the clock lies far behind
    clock.step(-200_000)
    ids = generator_on(Counting.on_clock(PoolConfig(name="behind"), clock.server_time_ms), clock)
    for _ in range(300):
        with pytest.raises(ClockSkewed):
            ids.next_id()
    before = asked
    for _ in range(1_000):
        with pytest.raises(ClockSkewed):
            ids.next_id()
    assert before == asked < 50
    clock.step(200_000)
    clock.advance(1_000)
    assert ids.next_id() > 0


class Limit(BaseException):
    """Raised by a signal handler, as for Ctrl-C or the time limit of a job."""


# more than any operation has
MOST_POINTS = 10_000


def slow_path_next(*, claimed: bool) -> SnowflakeGenerator:
    """Return a generator whose next id the slow path makes."""
    clock = ManualClock()
    ids = generator_on(MemoryStore(PoolConfig(name="limit"), clock.server_time_ms), clock)
    if claimed:
        ids.next_id()
        ids._allocator.seal()
        clock.advance(1)
    return ids


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="its tracing raises at moments, too, at which no signal handler runs"
)
@pytest.mark.parametrize(
    ("run_operation", "claimed"),
    [
        (SnowflakeGenerator.claim, False),
        (SnowflakeGenerator.next_id, True),
        (lambda ids: ids._slow_path._try_step(), True),
        (SnowflakeGenerator._beat, True),
        (SnowflakeGenerator.suspend, True),
        (SnowflakeGenerator.close, True),
    ],
    ids=["claim", "next_id", "try_step", "beat", "suspend", "close"],
)
def test_an_error_that_a_signal_handler_raises_leaves_no_lock_held(
    run_operation: Callable[[SnowflakeGenerator], object], claimed: bool
) -> None:
    at = raised = 0
    kept: Limit | None = None

    def limit() -> None:
        if points.signal:
            raise Limit

    while at == 0 or kept is not None:
        ids, kept = slow_path_next(claimed=claimed), None
        # at the first moment from there on
        points = Points(dict.fromkeys(range(at, MOST_POINTS), limit))
        try:
            with points:
                run_operation(ids)
        except Limit as error:
            # a job's result keeps it, and so its frames
            kept = error
            raised += 1
            assert free_for_others(ids), points.fired[-1]
        ids.close()
        # some points are so near that one of them will do
        at = points.count + 8
    assert raised > 10


def free_for_others(ids: SnowflakeGenerator) -> bool:
    """Return whether another thread can make an id, and nobody is in a conversation with the store."""
    made: list[int] = []

    def work() -> None:
        ids.resume()
        # needs both locks
        ids._lifecycle.release()
        made.append(0 if ids.closed else ids.next_id())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # release() waits for the lock of a conversation for 5 s
    thread.join(3)
    return bool(made) and ids._lease_manager.conversation.busy is None
