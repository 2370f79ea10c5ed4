"""Serializers of REST framework show ids and keys as strings, and take both."""

import django
from django.conf import settings

settings.INSTALLED_APPS.append("rest_framework")
django.setup()

import json

from rest_framework import serializers
from rest_framework.metadata import SimpleMetadata
from rest_framework.renderers import HTMLFormRenderer, JSONRenderer
from shop.models import Detail, Express, Line, Order, Reference, Tag

from snowredis.integrations.django.rest import SnowflakeModelMixin, SnowflakeSerializerField


def serializer(of, *bases, nested=0):
    class Made(*bases, serializers.ModelSerializer):
        class Meta:
            model, fields, depth = of, "__all__", nested

    return Made


def shown(instance, *bases, nested=0):
    return json.loads(JSONRenderer().render(serializer(type(instance), *bases, nested=nested)(instance).data))


tag, order, express = Tag.objects.create(), Order.objects.create(), Express.objects.create()
order.tags.add(tag)
line = Line.objects.create(order=order)
child = Tag.objects.create(parent=tag)
text = shown(order, SnowflakeModelMixin)
assert (text["id"], text["number"], text["tags"]) == (str(order.pk), str(order.number), [str(tag.pk)])
assert shown(line, SnowflakeModelMixin)["order"] == str(order.pk)
assert shown(child, SnowflakeModelMixin)["parent"] == str(tag.pk)
assert shown(tag, SnowflakeModelMixin)["parent"] is None
assert shown(express, SnowflakeModelMixin)["id"] == str(express.pk), shown(express, SnowflakeModelMixin)
nested = shown(line, SnowflakeModelMixin, nested=2)["order"]
assert (nested["id"], nested["number"]) == (str(order.pk), str(order.number)), nested
assert nested["tags"][0]["id"] == str(tag.pk), nested
assert shown(child, SnowflakeModelMixin, nested=1)["parent"]["id"] == str(tag.pk)
detail = Detail.objects.create(order=order)
assert shown(detail, SnowflakeModelMixin) == {"order": str(order.pk)}

lines = serializer(Line, SnowflakeModelMixin)
for good in (str(order.pk), order.pk):
    taken = lines(data={"order": good})
    assert taken.is_valid(raise_exception=True)
    assert taken.save().order == order
for bad in (float(order.pk), "12", "x", True, None, [], "9" * 2000, "1.0", 2**70):
    assert not lines(data={"order": bad}).is_valid(), bad
references = serializer(Reference, SnowflakeModelMixin)
taken = references(data={"foreign": "9223372036854775807"})
assert taken.is_valid(raise_exception=True)
assert taken.save().foreign == 2**63 - 1
for bad in (0, -1, "0", 2**63, 1.5, True):
    taken = references(data={"foreign": bad})
    assert not taken.is_valid(), bad
    assert "foreign" in taken.errors, bad


class OrderSerializer(SnowflakeModelMixin, serializers.ModelSerializer):
    tags = serializers.PrimaryKeyRelatedField(
        queryset=Tag.objects.all(), many=True, pk_field=SnowflakeSerializerField()
    )

    class Meta:
        model, fields = Order, ["id", "tags"]


assert OrderSerializer(order).data == {"id": str(order.pk), "tags": [str(tag.pk)]}

narrow = SnowflakeSerializerField(max_value=9, allow_null=True)
assert narrow.run_validation("9") == 9
assert narrow.run_validation(None) is None
for bad in ("10", "0", "x"):
    try:
        narrow.run_validation(bad)
    except serializers.ValidationError:
        continue
    raise AssertionError(bad)

# pages with forms and answers to OPTIONS take it for text: a browser rounds numbers
meta = SimpleMetadata().get_serializer_info(references())
assert [meta[name]["type"] for name in ("foreign", "typed")] == ["string", "string"], meta
assert 'type="text"' in HTMLFormRenderer().render(references().data, None, {})
