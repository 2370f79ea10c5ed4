"""When a generator asks Redis again: a table, without a clock; and the wait for a floor, with a warning."""

import itertools
import random
import re

import pytest

from snowredis.errors import ClockSkewed, LayoutMismatch, PoolExhausted, SnowredisError, StoreUnavailable
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import Behind, Reply, Request, Seen
from snowredis.snowflake.upkeep.pace import (
    AGAIN_S,
    BEAT_SHARES,
    FIRST_BEAT_S,
    FIRST_PAUSE_S,
    FLOOR_PAUSE_S,
    FULL_BEAT_S,
    LAST_PAUSE_S,
    SETTINGS_AGAIN_S,
    TIMED_OUT_PAUSE_S,
    Asked,
    CallPause,
    Pace,
    is_for_long,
)
from snowredis.testing import ManualClock, memory_pool
from tests.support.fake_pool import FakePool
from tests.support.programs import finished
from tests.support.servers import RedisServer

FULL = PoolExhausted("orders", 1024, 30_000)
AWAY = StoreUnavailable("redis:6379", "refused")
SLOW = StoreUnavailable("redis:6379", "slow")
SLOW.timed_out = True
OTHER = LayoutMismatch("orders", "layout=1", "layout=2")


def pace(timeout_s: float = 0.0, heartbeat_s: float = 10.0) -> Pace:
    return Pace(heartbeat_s, timeout_s, random.Random(7))


@pytest.mark.parametrize(
    ("asked", "error", "for_s"),
    [
        (Asked.CLAIM, ClockSkewed(9000, 2500), AGAIN_S),
        (Asked.SETTINGS, OTHER, SETTINGS_AGAIN_S),
        (Asked.RENEWAL, AWAY, AGAIN_S),
        (Asked.BEAT, ValueError("somebody else's"), AGAIN_S),
    ],
)
def test_a_failure_is_raised_again_for_a_while_and_known_until_a_success(
    asked: Asked, error: Exception, for_s: float
) -> None:
    here = pace()
    assert here.refusal(asked, 100) is here.failure(asked) is None
    assert here.failed(asked, error, 100)
    again = here.refusal(asked, 100 + for_s - 0.01)
    assert again is not None
    assert str(again) == str(error)
    # a copy: an error refers to frames, which refer to the generator
    assert again is not error
    assert again.__traceback__ is None
    assert here.refusal(asked, 100 + for_s) is None
    assert str(here.failure(asked)) == str(error)
    assert not here.failed(asked, error, 200)
    assert here.succeeded(asked)
    assert here.failure(asked) is None
    assert not here.succeeded(asked)


def test_what_is_asked_for_one_purpose_is_not_refused_for_another_nor_in_a_child() -> None:
    here = pace()
    here.failed(Asked.RENEWAL, AWAY, 0)
    assert [asked for asked in Asked if here.refusal(asked, 0)] == [Asked.RENEWAL]
    here.reset()
    assert here.failure(Asked.RENEWAL) is None


def test_heartbeats_come_soon_after_a_start_or_a_failure_and_else_at_random_in_their_time() -> None:
    here = pace()
    assert here.beat_in_s(is_first=True) == FIRST_BEAT_S
    assert here.beat_in_s(250) == 0.25
    low, high = (10 * share for share in BEAT_SHARES)
    usual = [here.beat_in_s() for _ in range(50)]
    assert low <= min(usual) < max(usual) <= high
    here.failed(Asked.BEAT, AWAY, 0)
    assert here.beat_in_s() == AGAIN_S
    # a fleet that waits for a full pool does not load Redis
    here.failed(Asked.BEAT, FULL, 0)
    low, high = FULL_BEAT_S
    full = [here.beat_in_s() for _ in range(50)]
    assert low <= min(full) < max(full) <= high
    here.succeeded(Asked.BEAT)
    assert here.beat_in_s() > AGAIN_S
    assert pace(heartbeat_s=0.1).beat_in_s(is_first=True) <= 0.1


@pytest.mark.parametrize(("heartbeat_s", "just_s"), [(10.0, 0.2), (0.1, 0.05)])
def test_a_renewal_just_after_another_is_not_sent(heartbeat_s: float, just_s: float) -> None:
    here = pace(heartbeat_s=heartbeat_s)
    assert here.just_renewed(just_s - 0.001)
    assert not here.just_renewed(just_s)


def waits(here: Pace, call: CallPause, error: SnowredisError, now_s: float) -> bool:
    gave_up = here.gives_up(call, now_s)
    here.begins_wait(call, error, now_s)
    return here.waits(call, error, now_s, gave_up=gave_up)


@pytest.mark.parametrize(
    ("error", "timeout_s", "expected"),
    [(FULL, 0, False), (FULL, 5, True), (SLOW, 0, False), (SLOW, 5, True), (AWAY, 5, False), (OTHER, 5, False)],
)
def test_a_call_waits_for_what_may_pass_within_its_time(
    error: SnowredisError, timeout_s: float, expected: bool
) -> None:
    assert waits(pace(timeout_s), CallPause(0), error, 0) == expected


def test_pauses_before_a_full_pool_double_and_end_with_the_time_of_the_call() -> None:
    here, call, now_s, pauses = pace(60.0), CallPause(0), 0.0, []
    soon = PoolExhausted("orders", 1024, 0)
    while waits(here, call, soon, now_s):
        pauses.append(call.due_s - now_s)
        now_s = call.due_s
    assert pauses[:3] == pytest.approx([FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S])
    assert max(pauses) == pytest.approx(LAST_PAUSE_S)
    assert all(later > earlier - 1e-9 for earlier, later in itertools.pairwise(pauses[:-1]))
    assert sum(pauses) == pytest.approx(60.0)


def test_processes_that_timed_out_together_do_not_ask_together_again() -> None:
    here, dues = pace(60.0), set()
    for _ in range(20):
        call = CallPause(0)
        assert waits(here, call, SLOW, 0)
        dues.add(call.due_s)
    assert len(dues) == 20
    assert max(dues) <= TIMED_OUT_PAUSE_S


def test_all_calls_that_wait_have_one_timeout_and_one_line() -> None:
    here, first, second = pace(5.0), CallPause(0), CallPause(3)
    assert here.begins_wait(first, FULL, 0)
    assert not here.begins_wait(second, FULL, 3)
    assert not here.gives_up(second, 4.9)
    assert here.gives_up(second, 5.0)
    # after a longer silence there may have been worker ids meanwhile, and after a worker id there was one
    assert here.begins_wait(CallPause(9), FULL, 9)
    here.replied(second, 0, 9.5)
    assert not here.gives_up(CallPause(9.6), 9.6)
    assert here.begins_wait(CallPause(9.6), FULL, 9.6)


def test_a_call_looks_now_and_then_whether_the_floor_was_raised_once_more() -> None:
    here, call = pace(), CallPause(0)
    here.replied(call, 35_000, 100)
    assert call.due_s == 100 + FLOOR_PAUSE_S
    here.replied(call, 30, 100)
    assert call.due_s == 100.03


@pytest.mark.parametrize(("error", "expected"), [(None, False), (FULL, False), (AWAY, False), (OTHER, True)])
def test_a_start_waits_for_what_may_pass(error: SnowredisError | None, expected: bool) -> None:
    assert is_for_long(error) == expected


# --- waits of a generator --------------------------------------------------------------------------

# the first worker waits for 1.2 s, long enough for the warning
PROGRAM = """
import sys, snowredis
with snowredis.connect(sys.argv[1], pool=sys.argv[2], ttl=1) as ids:
    print(ids.next_id())
"""
WARNING = (
    "pool {0}: new workers wait 1.2 s, so that no id is repeated: Redis did not know the pool, or was restarted. "
    "A pool that no process has used before is created without this wait by: snowredis pool create {0}"
)


def test_the_first_wait_is_one_line_on_stderr(server: RedisServer) -> None:
    done = finished("-c", PROGRAM, server.url, "first")
    assert int(done.stdout) > 0
    # logging is not configured there
    assert re.sub(r"wait \d\.\d s", "wait 1.2 s", done.stderr) == WARNING.format("first") + "\n"


def test_one_warning_a_wait_and_another_for_the_next() -> None:
    pace = Pace(10, 0.0, random.Random(1))
    waits = ((30, 0), (25, 5), (0.1, 10), (0.9, 100), (30, 100))
    assert [pace.says_floor(left_s, now_s) for left_s, now_s in waits] == [True, False, False, False, True]


def test_a_request_that_was_late_is_no_clock_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender's clock was right when it was sent: the claim is asked again."""
    clock = ManualClock()
    pool = memory_pool(clock=clock)
    ids = pool.connect()
    ask, late_ms = MemoryStore.ask, 60_000

    def late_claim(store: MemoryStore, request: Request) -> Reply:
        monkeypatch.setattr(MemoryStore, "ask", ask)
        clock.advance(late_ms)
        return Behind(clock.server_time_ms(), Seen("1-aa", 1), 0, None, late_ms)

    monkeypatch.setattr(MemoryStore, "ask", late_claim)
    assert ids.next_id() > 0


def test_a_heartbeat_that_finds_the_pool_full_is_no_claim_that_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FakePool(monkeypatch)
    with pool.connect(layout="41/0/2/0/20"):
        second = pool.connect(layout="41/0/2/0/20", claim_timeout=0)
        second._beat()
        assert (second.lease, pool.view.info().refused) == (None, 0)
        with pytest.raises(PoolExhausted):
            second.next_id()
        assert pool.view.info().refused == 1
        second.close()
