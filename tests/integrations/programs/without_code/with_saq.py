"""SAQ, with a worker in this process."""

import asyncio
import os
from typing import Any

from redis.asyncio import Redis
from saq import Worker
from saq.queue.redis import RedisQueue

import snowredis


async def make(_context: Any) -> int:
    return await snowredis.anext_id()


async def main() -> None:
    queue = RedisQueue(Redis.from_url(os.environ["SNOWREDIS_URL"]))
    worker = Worker(queue, functions=[make])
    running = asyncio.create_task(worker.start())
    # SAQ's first sweep aborts jobs that are queued before it
    await asyncio.sleep(2)
    for _ in range(10):
        print(await queue.apply("make"))
    await worker.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await queue.disconnect()


asyncio.run(main())
