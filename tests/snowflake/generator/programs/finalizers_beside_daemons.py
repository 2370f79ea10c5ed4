"""Daemon threads make ids until the interpreter has ended; finalizers close generators, and make ids, after that."""

import contextlib
import sys
import threading
import time

import snowredis

url, pool = sys.argv[1:3]


class Holder:
    """An object whose finalizer uses a generator, as late as the interpreter calls it."""

    def __init__(self, ids: snowredis.SnowflakeGenerator) -> None:
        self.ids = ids

    def __del__(self, errors: type[Exception] = snowredis.SnowredisError) -> None:
        try:
            self.ids.next_id()
        except errors:
            pass
        except (AttributeError, TypeError):
            # modules are gone
            pass
        self.ids.close()


def make(ids: snowredis.SnowflakeGenerator) -> None:
    while True:
        with contextlib.suppress(snowredis.SnowredisError):
            # the slow path, whose lock this thread is to hold when it is frozen
            ids._allocator.advance(only_claim=True)


all_ids = [snowredis.connect(url, pool=pool) for _ in range(3)]
holders = [Holder(ids) for ids in all_ids]
for ids in all_ids:
    ids.claim()
    for _ in range(3):
        threading.Thread(target=make, args=(ids,), daemon=True).start()
sys.modules["kept by an old module"] = holders[0]
time.sleep(0.05)
