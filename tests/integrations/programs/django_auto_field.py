"""A model and a link table that declare no primary key have a SnowflakeAutoField."""

from django.db import connection, models
from django.db.models import AutoField
from shop.models import Tag

from snowredis.integrations.django import SnowflakeAutoField


class Page(models.Model):
    tags = models.ManyToManyField(Tag)
    above = models.ForeignKey("self", models.CASCADE, null=True)

    class Meta:
        app_label = "shop"


pk = Page._meta.pk
assert isinstance(pk, SnowflakeAutoField)
assert isinstance(pk, AutoField)
assert not Page.check()
assert pk.db_type(connection) == "bigint"
assert Page._meta.get_field("above").db_type(connection) == "bigint"
with connection.schema_editor() as editor:
    editor.create_model(Page)
page = Page()
assert page.pk is None
page.save()
assert page.pk > 2**40
assert Page.objects.get().pk == page.pk
pages = Page.objects.bulk_create([Page(above=page), Page(pk=7)])
assert pages[0].pk > page.pk
assert pages[1].pk == 7
page.tags.set([Tag.objects.create(), Tag.objects.create()])
links = Page.tags.through.objects.values_list("pk", flat=True)
assert len(links) == 2
assert min(links) > page.pk
