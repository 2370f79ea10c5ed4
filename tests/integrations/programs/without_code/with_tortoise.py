"""Tortoise ORM."""

from tortoise import Tortoise, fields, run_async
from tortoise.models import Model

import snowredis


class Order(Model):
    id = fields.BigIntField(primary_key=True, generated=False, default=snowredis.next_id)


async def main() -> None:
    await Tortoise.init(db_url="sqlite://:memory:", modules={"models": [__name__]})
    await Tortoise.generate_schemas()
    await Order.bulk_create([Order() for _ in range(5)])
    for _ in range(5):
        await Order.create()
    print(*await Order.all().values_list("id", flat=True), sep="\n")


run_async(main())
