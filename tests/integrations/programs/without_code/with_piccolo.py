"""Piccolo."""

import asyncio
import tempfile

from piccolo.columns import BigInt
from piccolo.engine.sqlite import SQLiteEngine
from piccolo.table import Table

import snowredis

directory = tempfile.TemporaryDirectory()
DB = SQLiteEngine(path=f"{directory.name}/orders.sqlite")


class Order(Table, db=DB):
    id = BigInt(primary_key=True, default=snowredis.next_id)


async def main() -> None:
    await Order.create_table()
    await Order.insert(*(Order() for _ in range(5)))
    for _ in range(5):
        await Order().save()
    print(*await Order.select(Order.id).output(as_list=True), sep="\n")


asyncio.run(main())
directory.cleanup()
