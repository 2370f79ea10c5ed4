"""A field that is no primary key is filled when its row is inserted, and stays as it is."""

from shop.models import Order, Reference

order = Order()
assert order.number is None
order.full_clean()
order.save()
number = order.number
assert 0 < number < 2**63
assert number != order.pk
order.save()
order.refresh_from_db()
assert order.number == number
several = Order.objects.bulk_create([Order(), Order(number=5)])
assert several[0].number > 0
assert several[1].number == 5
assert Order.objects.get(pk=several[0].pk).number == several[0].number
assert Order.objects.update_or_create(name="new")[0].number > 0
reference = Reference.objects.create()
assert reference.foreign is None
assert reference.typed > 0

# an upsert makes a key for each object, and keeps that of the row, as with any default of a primary key
old = Order.objects.create(number=77)
upserted = Order(number=77, name="coffee")
Order.objects.bulk_create([upserted], update_conflicts=True, unique_fields=["number"], update_fields=["name"])
assert not Order.objects.filter(pk=upserted.pk).exists()
(read,) = Order.objects.in_bulk([77], field_name="number").values()
assert (read.pk, read.name) == (old.pk, "coffee")
