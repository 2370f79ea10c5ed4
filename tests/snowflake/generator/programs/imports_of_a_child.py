"""Print which modules of snowredis and redis a forked child imports for its first id: HOW URL POOL.

HOW: the name of an integration, which the parent imports, or of a function that it calls.
"""

import importlib
import os
import sys

import snowredis

how, url, pool = sys.argv[1:4]
if how == "preload":
    snowredis.preload()
elif how == "configure":
    snowredis.configure(url=url, pool=pool)
else:
    importlib.import_module(f"snowredis.integrations.{how}")
before = set(sys.modules)
if not os.fork():
    snowredis.configure(url=url, pool=pool)
    snowredis.next_id()
    print(*sorted(name for name in set(sys.modules) - before if name.startswith(("snowredis", "redis"))), flush=True)
    snowredis.close()
    os._exit(0)
os.wait()
