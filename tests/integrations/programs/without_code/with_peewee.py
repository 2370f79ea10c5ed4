"""Peewee: create() inserts, save() only with force_insert, since a row with a key looks like one that is there."""

from peewee import BigIntegerField, Model, SqliteDatabase, TextField

import snowredis

database = SqliteDatabase(":memory:")


class Order(Model):
    id = BigIntegerField(primary_key=True, default=snowredis.next_id)
    name = TextField(default="")

    class Meta:
        database = database


database.create_tables([Order])
Order.insert_many([{} for _ in range(5)]).execute()
for _ in range(4):
    Order.create()
Order().save()  # changes the row of this key, which is not there
assert Order.select().count() == 9
Order().save(force_insert=True)
print(*(order.id for order in Order.select()), sep="\n")
