"""Register shards, use each once, and print what was used: registrar REGISTRY_URL FIRST STEP COUNT POOL_URL..."""

import contextlib
import sys
import time

import snowredis
from snowredis.errors import ShardNumberRefused, StoreUnavailable
from snowredis.registry.registration import open_registered

registry_url, first, step, count, *pool_urls = sys.argv[1:]
SETTINGS = {"layout": "game-shards", "registry": "world", "registry_url": registry_url, "ttl": 5.0}
# every so many shards, a process makes ids
USED_EVERY = 10


def create(index: int) -> int:
    """Create a shard, however often it takes; return its number."""
    url, pool = pool_urls[index % len(pool_urls)], f"shard-{index}"
    while True:
        with contextlib.closing(open_registered(url, SETTINGS | {"pool": pool})) as registered:
            try:
                registered.register(lambda: time.time_ns() // 1_000_000)
            except ShardNumberRefused as refused:
                if "Delete it: snowredis pool delete" in str(refused):
                    # the number was given again meanwhile; nobody could use the pool
                    snowredis.WorkerPool(url, pool).delete()
                else:
                    time.sleep(0.02)
            except StoreUnavailable:
                time.sleep(0.02)
            else:
                return registered.config.datacenter


for index in range(int(first), int(count), int(step)):
    number = create(index)
    # before it is used, as an id would be written after it was made
    print("number", index, number, flush=True)
    if index % USED_EVERY == 0:
        url = pool_urls[index % len(pool_urls)]
        with snowredis.connect(url, pool=f"shard-{index}", **SETTINGS) as ids:  # type: ignore[arg-type]
            print("id", index, ids.next_id(), flush=True)
print("done", flush=True)
