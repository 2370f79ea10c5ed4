"""A composite primary key, of which a SnowflakeField is a part."""

from django.db import connection, models

from snowredis.integrations.django import SnowflakeField


class Pair(models.Model):
    pk = models.CompositePrimaryKey("tenant", "number")
    tenant = models.IntegerField()
    number = SnowflakeField()

    class Meta:
        app_label = "shop"


with connection.schema_editor() as editor:
    editor.create_model(Pair)
one = Pair(tenant=1)
one.save()
Pair.objects.bulk_create([Pair(tenant=1), Pair(tenant=2)])
assert len({pair.number for pair in Pair.objects.all()} - {None}) == 3
