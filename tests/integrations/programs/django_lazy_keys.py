"""Make objects, forms and pages without Redis, then insert rows with a pool in memory."""

from django.contrib.auth.models import User
from django.db import connection
from django.forms import inlineformset_factory, modelform_factory
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from shop.models import Express, Line, Order

import snowredis

order = Order(name="tea")
order.full_clean()
assert order.pk is None
assert order.number is None
assert Express().pk is None
form = modelform_factory(Order, fields=["name"])({"name": "milk"})
assert form.is_valid()
assert form.save(commit=False).pk is None
lines = inlineformset_factory(Order, Line, fields=["order"])(instance=Order())
assert "TOTAL_FORMS" in str(lines)
User.objects.create_superuser("root", password="root")
client = Client()
client.login(username="root", password="root")
assert client.get("/admin/shop/order/add/").status_code == 200
try:
    order.save()
except snowredis.StoreUnavailable:
    assert order.pk is None
else:
    raise AssertionError("no Redis, and yet an id")

with override_settings(SNOWREDIS={"testing": True, "pool": "shop", "min_replicas": 1}):
    with CaptureQueriesContext(connection) as queries:
        order.save()
    assert [query["sql"].split()[0] for query in queries] == ["INSERT"], queries.captured_queries
    assert 0 < order.pk < order.number
    assert Order.objects.get(pk=order.pk) == order
    first = snowredis.next_id()
# the same memory, so no id is repeated in the next test
with override_settings(SNOWREDIS={"testing": True, "pool": "shop"}):
    assert snowredis.next_id() > first
