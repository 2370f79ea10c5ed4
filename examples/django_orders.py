# Type:     python examples/django_orders.py
# Needs:    pip install django; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  a Django site in one file whose orders have snowredis ids: four processes that fill one table, a page that
#           is found by id, JSON that JavaScript reads correctly, and the worker ids of the processes. It starts its
#           own Redis (embedded://) and uses SQLite; your site names its Redis in SNOWREDIS instead.

import multiprocessing
import tempfile
import time
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

ROWS, PROCESSES = 2_000, 4
directory = tempfile.TemporaryDirectory()

settings.configure(
    DEBUG=True,
    SECRET_KEY="of this example",  # noqa: S106
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["snowredis.integrations.django"],
    SNOWREDIS={"url": "embedded://", "pool": "django-orders", "label": "django_orders"},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(directory.name) / "db.sqlite3",
            # four processes write to it
            "OPTIONS": {"timeout": 60},
        }
    },
)
django.setup()

from django.db import connection, models  # noqa: E402 there are no models before setup()
from django.http import JsonResponse  # noqa: E402
from django.shortcuts import get_object_or_404  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path, register_converter  # noqa: E402

from snowredis import Layout, WorkerPool  # noqa: E402
from snowredis.integrations.django import SnowflakeConverter, SnowflakeField  # noqa: E402


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    item = models.CharField(max_length=50)

    class Meta:
        app_label = "orders"


def show(_request, pk):
    order = get_object_or_404(Order, pk=pk)
    # as a string: JavaScript reads 249734652741287937 as 249734652741287940
    return JsonResponse({"id": str(order.pk), "item": order.item})


register_converter(SnowflakeConverter, "snowflake")
urlpatterns = [path("orders/<snowflake:pk>/", show)]


def fill():
    """Insert orders. Each process runs this, and claims a worker id of its own at its first order."""
    for _ in range(4):
        Order.objects.bulk_create([Order(item="tea") for _ in range(ROWS // 4)])


with connection.schema_editor() as editor:
    editor.create_model(Order)
call_command("check")

# a connection does not survive a fork
connection.close()
began = time.perf_counter()
forking = multiprocessing.get_context("fork")
children = [forking.Process(target=fill) for _ in range(PROCESSES)]
for child in children:
    child.start()
for child in children:
    child.join()
    assert child.exitcode == 0

ids = list(Order.objects.values_list("id", flat=True))
workers = {Layout().decode(an_id).worker for an_id in ids}
print(f"{PROCESSES} processes made {len(ids):,} orders in {time.perf_counter() - began:.2f} s,")
print(f"with the worker ids {sorted(workers)}; no id is repeated: {len(set(ids)) == len(ids)}")
assert len(set(ids)) == len(ids) == ROWS * PROCESSES

order = Order(item="cake")
assert order.pk is None
order.save()
print(f"\nan order gets its id when it is saved: {order.pk}")
print("its page:", Client().get(f"/orders/{order.pk}/").content.decode())
print("a number that is not an id is not found:", Client().get("/orders/99999999999999999999/").status_code, "\n")

for lease in WorkerPool("embedded://", "django-orders").workers():
    print(f"worker id {lease.worker} is leased by {lease.host}:{lease.pid} ({lease.label})")
directory.cleanup()
