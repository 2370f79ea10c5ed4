"""Make a generator while locks are held that a handler's thread holds."""

from snowredis.process.exit import EXIT
from snowredis.process.fork import GUARD
from snowredis.testing import memory_pool

memory_pool().connect()
with GUARD._lock, EXIT._lock:
    memory_pool().connect().next_id()
