"""JSON of Django itself, and of Django Ninja: ids as strings."""

import json

from django.http import JsonResponse
from django.template import Context, Template
from django.test import Client
from django.urls import path
from ninja import ModelSchema, NinjaAPI
from ninja.renderers import JSONRenderer
from ninja.responses import NinjaJSONEncoder
from shop.models import Line, Order
from web import urls

from snowredis.integrations.json import SnowflakeEncoder, stringify
from snowredis.integrations.pydantic import JsonSnowflakeId

order = Order.objects.create()
line = Line.objects.create(order=order)
data = {"id": order.pk, "name": order.name}
assert json.loads(JsonResponse(stringify(data)).content) == {"id": str(order.pk), "name": "tea"}
page = Template('{{ data|json_script:"order" }}').render(Context({"data": stringify(data)}))
assert f'"{order.pk}"' in page, page


class OrderSchema(ModelSchema):
    id: JsonSnowflakeId

    class Meta:
        model = Order
        fields = ("id", "name")


class LineSchema(ModelSchema):
    order: JsonSnowflakeId

    class Meta:
        model = Line
        fields = ("order",)

    @staticmethod
    def resolve_order(row):
        return row.order_id


JSONRenderer.encoder_class = type("Encoder", (SnowflakeEncoder, NinjaJSONEncoder), {})
api = NinjaAPI()


@api.get("/orders/{pk}", response=OrderSchema)
def one_order(request, pk: JsonSnowflakeId):
    return Order.objects.get(pk=pk)


@api.get("/line", response=LineSchema)
def one_line(request):
    return line


urls.urlpatterns.append(path("api/", api.urls))
got = Client().get(f"/api/orders/{order.pk}")
assert got.json() == {"id": str(order.pk), "name": "tea"}, got.content
assert Client().get("/api/line").json() == {"order": str(order.pk)}
described = json.loads(Client().get("/api/openapi.json").content)
assert described["components"]["schemas"]["OrderSchema"]["properties"]["id"]["type"] == "string"
(parameter,) = described["paths"]["/api/orders/{pk}"]["get"]["parameters"]
assert parameter["schema"]["type"] == "string", parameter
