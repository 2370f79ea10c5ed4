"""Dump all rows, delete them, and load them again: in each format, with every digit."""

from django.core.management import call_command
from shop.models import Line, Order, Tag

orders = Order.objects.bulk_create([Order() for _ in range(20)] + [Order(pk=2**63 - 1, number=2**63 - 1)])
for order in orders:
    Line.objects.create(order=order)
    order.tags.add(Tag.objects.create())


def rows():
    tables = [sorted(model.objects.values_list()) for model in (Order, Line, Tag)]
    return [*tables, sorted(Order.tags.through.objects.values_list("order_id", "tag_id"))]


before = rows()
for form in ("json", "xml", "jsonl"):
    call_command("dumpdata", "shop", format=form, output=f"dump.{form}")
    Order.objects.all().delete()
    Tag.objects.all().delete()
    call_command("loaddata", f"dump.{form}", verbosity=0)
    for now, then in zip(rows(), before, strict=True):
        assert now == then, (form, now, then)
