"""Four forked processes insert 1,600 rows into one table; no id of them is repeated."""

import django

django.setup()

import os

from shop.models import Order

children = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        for _ in range(4):
            Order.objects.bulk_create([Order() for _ in range(100)])
        os._exit(0)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
rows = Order.objects.values_list("id", "number")
assert len(rows) == 1_600, len(rows)
everything = [an_id for row in rows for an_id in row]
assert len(set(everything)) == 3_200
