"""The worker of arq that test_job_queues.py runs; as a program, what sends it TASKS tasks: arq_app.py TASKS."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import arq
import redis.asyncio
from arq.connections import RedisSettings

import snowredis
from tests.integrations.queue_tasks import IDS_KEY, IDS_PER_TASK, URL

SETTINGS = RedisSettings(unix_socket_path=URL.removeprefix("unix://"))


async def note_ids(_context: dict[str, Any], _number: int) -> None:
    async with redis.asyncio.Redis.from_url(URL) as client:
        await client.rpush(IDS_KEY, *await snowredis.anext_ids(IDS_PER_TASK))


class Worker:
    """Settings of the worker."""

    functions = (note_ids,)
    redis_settings = SETTINGS


async def send(count: int) -> None:
    queue = await arq.create_pool(SETTINGS)
    for number in range(count):
        await queue.enqueue_job("note_ids", number)
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(send(int(sys.argv[1])))
