"""The task of rq and celery: it makes ids, and notes them and when it ended.

In the environment: DEATHS_URL, of the Redis of the queues and of the pool.
"""

from __future__ import annotations

import os
import struct
import time

import redis

import snowredis

URL = os.environ["DEATHS_URL"]
POOL, NOTES_KEY, IDS = "deaths", "notes", 20
# pid, ms since 1970, ids; -1 for a pool that is full
NOTE = struct.Struct(f"{2 + IDS}q")

snowredis.configure(url=URL, pool=POOL, layout="41/0/2/6/14")


def note_ids() -> None:
    """Make ids and note them. rq's process ends by os._exit() then."""
    try:
        made = snowredis.next_ids(IDS)
    except snowredis.PoolExhausted:
        made = [-1] * IDS
    with redis.Redis.from_url(URL) as client:
        client.rpush(NOTES_KEY, NOTE.pack(os.getpid(), time.time_ns() // 1_000_000, *made))
