"""The wait for a pool that Redis does not know is visible: a warning."""

import random
import re

import pytest

from snowredis.errors import PoolExhausted
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import Behind, Reply, Request, Seen
from snowredis.snowflake.upkeep.pace import Pace
from snowredis.testing import ManualClock, memory_pool
from tests.support.fake_pool import FakePool
from tests.support.programs import finished
from tests.support.servers import RedisServer

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
