"""Primary keys that are there before the row: objects are made, saved, copied and inserted in bulk."""

from django.db import connection
from django.test.utils import CaptureQueriesContext
from shop.models import Invoice, Tag

first = Tag()
assert 0 < first.pk < 2**63
assert first._state.adding
with CaptureQueriesContext(connection) as queries:
    first.save()
assert [query["sql"].split()[0] for query in queries] == ["INSERT"], queries.captured_queries
first.save()
assert Tag.objects.count() == 1

made = Tag.objects.create()
assert made.pk > first.pk
assert Tag.objects.get(pk=made.pk) == made
assert Tag.objects.get_or_create(parent=made)[1]
assert not Tag.objects.get_or_create(parent=made)[1]
assert Tag.objects.update_or_create(pk=made.pk, defaults={"parent": first}) == (made, False)
assert Tag.objects.create(pk=7).pk == 7

# the way to copy a row
copied, made.pk, made._state.adding = made.pk, None, True
made.save()
assert made.pk != copied
assert Tag.objects.filter(pk=copied).exists()

many = Tag.objects.bulk_create([Tag(parent=made) for _ in range(3000)])
pks = [tag.pk for tag in many]
assert pks == sorted(set(pks))
assert Tag.objects.filter(pk__in=pks[:100]).count() == 100
no_pks = Tag.objects.bulk_create([Tag(pk=None), Tag(pk=None)])
assert all(tag.pk for tag in no_pks)
assert no_pks[0].pk != no_pks[1].pk
Tag.objects.bulk_create([Tag(pk=pks[0])], ignore_conflicts=True)

# these ids are of another pool
assert 0 < Invoice.objects.create().pk < Invoice.objects.create().pk
