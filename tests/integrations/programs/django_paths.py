"""Make and open paths with ids in them."""

from django.test import Client
from django.urls import reverse

client = Client()
assert reverse("order", args=[2**63 - 1]) == "/orders/9223372036854775807/"
assert client.get("/orders/9223372036854775807/").json() == {"id": "9223372036854775807"}
for bad in ("0", "-1", "007", str(2**63), "1" * 30, "1.0", "\uff11"):
    assert client.get(f"/orders/{bad}/").status_code == 404, bad
