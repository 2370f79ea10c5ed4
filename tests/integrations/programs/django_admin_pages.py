"""Add, change and delete rows on the pages of the admin."""

from django.contrib.auth.models import User
from django.test import Client
from shop.models import Order, Reference

User.objects.create_superuser("root", password="root")
client = Client(raise_request_exception=True)
assert client.login(username="root", password="root")


def post(path, **data):
    answer = client.post(path, data)
    assert answer.status_code == 302, answer.content.decode()


def lines(**more):
    counts = {"TOTAL_FORMS": "1", "INITIAL_FORMS": "0", "MIN_NUM_FORMS": "0", "MAX_NUM_FORMS": "9"}
    return {f"line_set-{name}": value for name, value in {**counts, **more}.items()}


post("/admin/shop/order/add/", name="first", **lines())
order = Order.objects.get()
page = client.get(f"/admin/shop/order/{order.pk}/change/").content.decode()
assert str(order.pk) in page
assert str(order.number) in page
post(f"/admin/shop/order/{order.pk}/change/", name="second", **lines())
assert Order.objects.get().name == "second"
assert Order.objects.get().pk == order.pk
assert str(order.pk) in client.get("/admin/shop/order/").content.decode()
post("/admin/shop/reference/add/", foreign=str(order.pk), typed="")
assert Reference.objects.get().foreign == order.pk
post(f"/admin/shop/order/{order.pk}/delete/", post="yes")
assert not Order.objects.exists()
