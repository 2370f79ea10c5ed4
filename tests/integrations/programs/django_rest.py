"""REST framework shows ids and keys as strings, takes both, and describes each id as what the JSON has."""

import django
from django.conf import settings

settings.INSTALLED_APPS += ["rest_framework", "drf_spectacular"]
settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
django.setup()

import json

from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from rest_framework import routers, serializers, viewsets
from rest_framework.metadata import SimpleMetadata
from rest_framework.renderers import HTMLFormRenderer, JSONRenderer
from rest_framework.schemas.openapi import AutoSchema as OwnSchema
from rest_framework.test import APIClient
from shop.models import Detail, Express, Line, Order, Reference, Tag
from web import urls

from snowredis.integrations.django.rest import SnowflakeModelMixin, SnowflakeSerializerField

STRING = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}


def serializer_of(of, *bases, name=None, depth=0, **fields):
    meta = type("Meta", (), {"model": of, "fields": "__all__", "depth": depth})
    return type(f"{name or of.__name__}Serializer", (*bases, serializers.ModelSerializer), {"Meta": meta, **fields})


# --- what is shown, and taken --------------------------------------------------------------------------


def shown(instance, depth=0):
    serializer = serializer_of(type(instance), SnowflakeModelMixin, depth=depth)
    return json.loads(JSONRenderer().render(serializer(instance).data))


tag, order, express = Tag.objects.create(), Order.objects.create(), Express.objects.create()
order.tags.add(tag)
line = Line.objects.create(order=order)
child = Tag.objects.create(parent=tag)
text = shown(order)
assert (text["id"], text["number"], text["tags"]) == (str(order.pk), str(order.number), [str(tag.pk)])
assert shown(line)["order"] == str(order.pk)
assert shown(child)["parent"] == str(tag.pk)
assert shown(tag)["parent"] is None
assert shown(express)["id"] == str(express.pk), shown(express)
nested = shown(line, depth=2)["order"]
assert (nested["id"], nested["number"]) == (str(order.pk), str(order.number)), nested
assert nested["tags"][0]["id"] == str(tag.pk), nested
assert shown(child, depth=1)["parent"]["id"] == str(tag.pk)
detail = Detail.objects.create(order=order)
assert shown(detail) == {"order": str(order.pk)}

lines = serializer_of(Line, SnowflakeModelMixin)
for good in (str(order.pk), order.pk):
    taken = lines(data={"order": good})
    assert taken.is_valid(raise_exception=True)
    assert taken.save().order == order
for bad in (float(order.pk), "12", "x", True, None, [], "9" * 2000, "1.0", 2**70):
    assert not lines(data={"order": bad}).is_valid(), bad
references = serializer_of(Reference, SnowflakeModelMixin)
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


# --- what is described --------------------------------------------------------------------------------


def view_of(of, *bases, **options):
    members = {"serializer_class": serializer_of(of, *bases, **options), "queryset": of.objects.order_by("pk")}
    return type(f"{of.__name__}View", (viewsets.ModelViewSet,), members)


def types_of(schema, value):
    """Return what the description says of a part of the JSON, in the shape of the JSON."""
    while "$ref" in schema or "allOf" in schema:
        schema = schema["allOf"][0] if "allOf" in schema else components[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [types_of(schema["items"], item) for item in value]
    if isinstance(value, dict):
        return {name: types_of(schema["properties"][name], item) for name, item in value.items()}
    return schema["type"]


def types_in(value):
    if isinstance(value, list):
        return [types_in(item) for item in value]
    if isinstance(value, dict):
        return {name: types_in(item) for name, item in value.items()}
    return {str: "string", int: "integer", bool: "boolean"}[type(value)]


router = routers.DefaultRouter()
router.register("orders", view_of(Order, SnowflakeModelMixin))
router.register(
    "lines", view_of(Line, SnowflakeModelMixin, order=serializer_of(Order, SnowflakeModelMixin, name="Nested")())
)
router.register("express", view_of(Express, SnowflakeModelMixin))
router.register("details", view_of(Detail, SnowflakeModelMixin))
router.register("tags", view_of(Tag, SnowflakeModelMixin))
# what has no mixin keeps numbers, and is described so
router.register("plain", view_of(Order, name="Plain"), basename="plain")
converted = view_of(Tag, SnowflakeModelMixin, name="Other").as_view({"get": "retrieve"})
inner = view_of(Line, SnowflakeModelMixin, name="Inner").as_view({"get": "list"})
urls.urlpatterns += [
    path("", include(router.urls)),
    path("converted/<snowflake:pk>/", converted),
    path("of-order/<order_pk>/lines/", inner),
]
SAMPLES = ["orders", "lines", "express", "details", "tags", "plain"]

described = SchemaGenerator().get_schema(request=None, public=True)
components = described["components"]["schemas"]
for name in SAMPLES:
    body = described["paths"][f"/{name}/"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    rows = json.loads(APIClient().get(f"/{name}/").content)
    # the parent of the first tag is null
    rows = [{key: value for key, value in row.items() if value is not None} for row in rows]
    assert rows
    assert types_of(body, rows) == types_in(rows), (name, types_of(body, rows), types_in(rows))
assert components["Order"]["properties"]["tags"] == {"type": "array", "items": STRING}, components["Order"]
assert components["Plain"]["properties"]["id"]["type"] == "integer", components["Plain"]
assert components["Tag"]["properties"]["parent"] == {**STRING, "nullable": True}, components["Tag"]


def parameter(start):
    """Return what is said of the parameter of a path."""
    (found,) = [item for path, item in described["paths"].items() if path.startswith(start) and "{" in path]
    (only,) = found["get"]["parameters"]
    return only["schema"]


for name in ("orders", "plain", "tags", "express", "details"):
    assert parameter(f"/{name}") == STRING, (name, parameter(f"/{name}"))
assert parameter("/converted")["type"] == "string"
assert parameter("/of-order") == STRING
# the key of a line is an AutoField
assert parameter("/lines")["type"] == "integer"

own = OwnSchema().map_serializer(serializer_of(Order, SnowflakeModelMixin)())["properties"]
described_by_own = [own["id"]["type"], own["number"]["type"], own["tags"]["items"]["type"]]
assert described_by_own == ["string"] * 3, own
