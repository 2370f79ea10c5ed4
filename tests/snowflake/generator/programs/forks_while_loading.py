"""Fork children that make ids while other threads load the package for their first id: URL POOL."""

import os
import sys
import threading
from typing import Any

import snowredis

os.environ |= {"SNOWREDIS_URL": sys.argv[1], "SNOWREDIS_POOL": sys.argv[2]}


def make_ids() -> None:
    while True:
        snowredis.next_ids(100)


for _ in range(2):
    threading.Thread(target=make_ids, daemon=True).start()
children: list[Any] = []
while len(children) < 10:
    if child := os.fork():
        children.append(child)
        continue
    snowredis.next_id()
    snowredis.close()
    os._exit(0)
assert {os.waitpid(child, 0)[1] for child in children} == {0}
