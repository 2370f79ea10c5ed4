"""Make ids with the fast path alone, and with a generator; interpreters.py runs this in interpreters of their own."""

import sys
import threading
import time

from snowredis.core import lanes
from snowredis.snowflake.ids import fast_path


class Counted(fast_path.FastPath):
    __slots__ = ("_lock",)

    def _next_slow(self):
        return 0


ids = Counted()
ids._lock = threading.RLock()


class System:
    time, time_ns = time.time, time.time_ns


# one tick of three years
ticks = lanes.TickRange(1, 0, 0, 1735689600000, 10**11, 0, 4095, 12, 0, 0, 0, b"\1", System, None)
ids._supersede(None, lanes.SEALED, ticks)
assert [ids.next_id() for _ in range(4095)] == [*range(2, 4096), 0]

# hashlib and datetime of Python 3.12.1 crash when such an interpreter ends
if sys.version_info >= (3, 13):
    from snowredis.snowflake.generator import SnowflakeGenerator
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from snowredis.testing import ManualClock, memory_pool

    clock = ManualClock()
    ids = SnowflakeGenerator(memory_pool(clock=clock).memory_store(PoolConfig(name="own")), clock=clock)
    many = [ids.next_id() for _ in range(3000)]
    assert sorted(set(many)) == many
    ids.close()
print(fast_path.IMPLEMENTATION, id(fast_path.FastPath), flush=True)
