# Type:     python examples/quickstart.py
# Needs:    redis-server, or else pip install 'fakeredis[lua]'
# You see:  three ids, the fields of one of them, how fast a million more are made, and which process has
#           which worker id. It starts its own Redis (embedded://), which goes on after it. To use
#           yours, write redis://localhost:6379/0 instead; everything else stays the same.

import time

import snowredis

URL = "embedded://"

with snowredis.connect(URL, pool="quickstart", label="quickstart") as ids:
    print("three ids:", *(ids.next_id() for _ in range(3)))

    an_id = ids.next_id()
    parts = ids.decode(an_id)
    print(f"{an_id} was made at {parts.time:%Y-%m-%d %H:%M:%S.%f} UTC by worker id {parts.worker}")
    print("as text:", snowredis.encode(an_id, "base62"), "or", snowredis.encode(an_id, "friendly"))

    began = time.perf_counter()
    many = ids.next_ids(1_000_000)
    print(f"{len(many):,} more in {time.perf_counter() - began:.2f} s")
    assert len(set(many)) == len(many)

    for worker in snowredis.WorkerPool(URL, "quickstart").workers():
        left = worker.end_ms / 1000 - time.time()
        print(f"worker id {worker.worker}: {worker.label}, pid {worker.pid}, lease ends in {left:.1f} s")

print("the worker id was released:", snowredis.WorkerPool(URL, "quickstart").workers() == [])
