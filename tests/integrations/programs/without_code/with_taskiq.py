"""taskiq, with its broker in memory."""

import asyncio

from taskiq import InMemoryBroker

import snowredis

broker = InMemoryBroker()


@broker.task
async def make() -> int:
    return await snowredis.anext_id()


async def main() -> None:
    await broker.startup()
    for _ in range(10):
        print((await (await make.kiq()).wait_result()).return_value)
    await broker.shutdown()


asyncio.run(main())
