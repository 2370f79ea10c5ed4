"""Make and open paths with ids in them, and one for which there is no id now."""

import asyncio

from django.test import AsyncClient, Client, override_settings
from django.urls import path, reverse
from web import urls

import snowredis

client = Client()
assert reverse("order", args=[2**63 - 1]) == "/orders/9223372036854775807/"
assert client.get("/orders/9223372036854775807/").json() == {"id": "9223372036854775807"}
for bad in ("0", "-1", "007", str(2**63), "1" * 30, "1.0", "\uff11"):
    assert client.get(f"/orders/{bad}/").status_code == 404, bad


def fail(request, name):
    raise {"away": snowredis.StoreUnavailable("h", "r"), "wrong": snowredis.ConfigError("x")}[name]


urls.urlpatterns.append(path("<name>/", fail))
with override_settings(MIDDLEWARE=["snowredis.integrations.unavailable.django"]):
    client, other = (each(raise_request_exception=False) for each in (Client, AsyncClient))
    for refused in (client.get("/away/"), asyncio.run(other.get("/away/"))):
        assert (refused.status_code, refused["Retry-After"]) == (503, "2")
    assert client.get("/wrong/").status_code == asyncio.run(other.get("/wrong/")).status_code == 500
