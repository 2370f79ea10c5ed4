"""drf-spectacular and REST framework describe each id as what the JSON has: in bodies, paths and nested rows."""

import django
from django.conf import settings

settings.INSTALLED_APPS += ["rest_framework", "drf_spectacular"]
settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
django.setup()

import json

from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from rest_framework import routers, serializers, viewsets
from rest_framework.schemas.openapi import AutoSchema as OwnSchema
from rest_framework.test import APIClient
from shop.models import Detail, Express, Line, Order, Tag
from web import urls

from snowredis.integrations.django.rest import SnowflakeModelMixin

STRING = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}


def serializer_of(of, *bases, name=None, **fields):
    meta = type("Meta", (), {"model": of, "fields": "__all__"})
    return type(f"{name or of.__name__}Serializer", (*bases, serializers.ModelSerializer), {"Meta": meta, **fields})


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

tag, order, express = Tag.objects.create(), Order.objects.create(), Express.objects.create()
order.tags.add(tag)
Tag.objects.create(parent=tag)
Line.objects.create(order=order)
Detail.objects.create(order=order)

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
