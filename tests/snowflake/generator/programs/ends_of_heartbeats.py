"""Print how many threads a generator has, and how many are left after close(), and at exit with and without it."""

import _thread

from snowredis.process.exit import EXIT
from snowredis.testing import memory_pool

for leave in ("close", "exit", "drop"):
    ids = memory_pool().connect()
    ids.next_id()
    before = _thread._count()
    if leave == "close":
        ids.close()
    elif leave == "drop":
        del ids
    if leave != "close":
        EXIT.close_all()
    print(leave, before, _thread._count())
