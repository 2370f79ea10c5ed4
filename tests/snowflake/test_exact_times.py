"""Decisions of the scripts after a loss, and at the end of a pool: at the last ms at which they hold, and after.

On the Redis of the simulation, whose clock stands still between the steps of a test.
"""

from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.snowflake.protocol.messages import Granted, LossReason, Lost, Renewed, Settling
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from tests.snowflake.protocol.simulated import SimPool

# lead and slack differ, so that none stands for another
CONFIG = PoolConfig(
    name="p",
    layout=Layout(timestamp_bits=41, backup_bits=2, worker_bits=2, sequence_bits=10),
    ttl_ms=3_000,
    max_clock_lead_ms=100,
    failover_slack_ms=290,
    outage_reserve_ms=0,
)
MARGIN_MS = 100 + 290
FLOOR_MS = 3_000 + MARGIN_MS


class Pool(SimPool):
    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.stage.wait(10_000)

    def pass_ms(self, ms: int) -> None:
        self.stage.master.offset_us += ms * 1000

    def stored_ms(self, field: str) -> int:
        return int(self.stored[field])


@pytest.fixture
def pool() -> Pool:
    return Pool()


# the later of the two clocks counts: that of Redis may be behind, and set right later
@pytest.mark.parametrize("behind_ms", [0, 1_000])
@pytest.mark.parametrize("left_ms", [MARGIN_MS, MARGIN_MS + 1])
def test_another_server_adopts_a_lease_whose_reservation_it_could_not_have_given_away(
    pool: Pool, left_ms: int, behind_ms: int
) -> None:
    holder = pool.holder().claim()
    pool.pass_ms(holder.until_ms - pool.now_ms() - left_ms)
    pool.restart()
    pool.pass_ms(-behind_ms)
    reply = holder.ask_renew(ahead_ms=behind_ms)
    pool.pass_ms(behind_ms)
    assert reply.floor_ms == pool.now_ms() + FLOOR_MS
    if left_ms > MARGIN_MS:
        assert isinstance(reply, Renewed)
        assert reply.adopted
    else:
        assert isinstance(reply, Lost)
        assert reply.reason is LossReason.TOO_OLD
    assert pool.holder().settling().wait_ms == FLOOR_MS
    pool.pass_ms(FLOOR_MS - 1)
    assert isinstance(pool.holder().ask_claim(), Settling)
    pool.pass_ms(1)
    assert isinstance(pool.holder().ask_claim(), Granted)


@pytest.mark.parametrize("back_ms", [3_100, 3_101])
def test_a_loss_that_was_noticed_further_ahead_than_lead_and_ttl_counts_as_noticed_now(
    pool: Pool, back_ms: int
) -> None:
    pool.pass_ms(3_600_000)
    pool.restart()
    high_ms = pool.now_ms() + FLOOR_MS
    assert pool.holder().ask_claim().floor_ms == high_ms
    pool.pass_ms(-back_ms)
    floor_ms = pool.holder().ask_claim().floor_ms
    assert floor_ms == (high_ms if back_ms == 3_100 else pool.now_ms() + FLOOR_MS)


# the others are for people only
@pytest.mark.parametrize("field", ["until_ms", "lease_end_ms", "lanes_ms", "outage_ms"])
def test_a_record_with_a_time_that_tostring_would_not_write_whole_is_broken(pool: Pool, field: str) -> None:
    one = pool.holder().claim()
    stored = pool.stored
    record = LeaseRecord.parse(stored["w:0"])
    assert record is not None
    late: Any = {field: (10**14,) if field == "lanes_ms" else 10**14}
    stored["w:0"] = record._replace(**late).pack()
    with pytest.raises(StoreUnavailable):
        one.ask_renew()


def test_an_index_that_is_rebuilt_in_many_steps_counts_the_records_that_are_there(pool: Pool) -> None:
    """A person removed a record; the index is lost again between two steps, in which others are served."""
    living, *_ = [pool.holder().claim() for _ in range(3)]
    server = pool.stage.master
    del pool.stored["w:1"], server.data[pool_keys("p")[1]]
    server.index_step = 1
    asked = 0
    while not isinstance(pool.holder().ask_claim(), Granted):
        asked += 1
        assert asked < 100
        assert isinstance(living.ask_renew(), Renewed)
        if asked == 2:
            del server.data[pool_keys("p")[1]]
    assert asked > 4
    # two were left, and one is new
    assert pool.stored_ms("records") == 3
