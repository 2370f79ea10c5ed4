"""Foreign keys to Snowflakes, link tables, and a model that inherits its primary key."""

from django.db import connection
from shop.models import Express, Line, Order, Tag

assert Line().order_id is None
assert Tag().parent_id is None
column = Line._meta.get_field("order")
assert column.db_type(connection) == Order._meta.pk.db_type(connection) == "bigint"
order = Order.objects.create()
Line.objects.create(order=order)
tag = Tag.objects.create()
order.tags.add(tag)
assert Order.objects.filter(tags=tag, line__order_id=order.pk).get() == order

express = Express.objects.create(name="quick")
assert express.pk == express.id == express.order_ptr_id
assert express.number > 0
express.name = "quicker"
express.save()
assert Order.objects.get(pk=express.pk).name == "quicker"
assert Express.objects.count() == 1
