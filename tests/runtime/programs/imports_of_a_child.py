"""Print which modules of snowredis and redis a forked child imports for its first id, under an integration."""

import importlib
import os
import sys

import snowredis

module, url, pool = sys.argv[1:4]
importlib.import_module(f"snowredis.integrations.{module}")
before = set(sys.modules)
if not os.fork():
    snowredis.configure(url=url, pool=pool)
    snowredis.next_id()
    print(
        *sorted(name for name in set(sys.modules) - before if name.startswith(("snowredis", "redis"))),
        flush=True,
    )
    snowredis.close()
    os._exit(0)
os.wait()
