"""Claim worker ids, and print them: claimer URL POOL COUNT."""

import secrets
import sys
import time

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from tests.support.holder import Holder

url, name, count = sys.argv[1:]
config = PoolConfig(name=name, layout=Layout(timestamp_bits=41, worker_bits=8, sequence_bits=10), ttl_ms=30_000)
store = RedisStore(url, config)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(count)):
    holder = Holder(store, lambda: time.time_ns() // 1_000_000, token=secrets.token_hex(16)).claim()
    print(holder.worker)
