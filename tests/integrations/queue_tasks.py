"""The tasks that the workers of test_job_queues.py run, for rq, dramatiq and huey: they note every id in Redis.

In the environment: QUEUE_URL, of the Redis of the queues and of the pool.
"""

from __future__ import annotations

import os
from typing import Any

import redis

import snowredis

URL = os.environ["QUEUE_URL"]
POOL, IDS_KEY, IDS_PER_TASK = "queues", "made", 50

snowredis.configure(url=URL, pool=POOL)


def note_ids(_: int = 0) -> None:
    client = redis.Redis.from_url(URL)
    client.rpush(IDS_KEY, *snowredis.next_ids(IDS_PER_TASK))
    client.close()


def dramatiq_actor() -> Any:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=URL))
    return dramatiq.actor(note_ids)


def huey_task() -> tuple[Any, Any]:
    from huey import RedisHuey

    huey = RedisHuey("tests", url=URL)
    return huey, huey.task()(note_ids)
