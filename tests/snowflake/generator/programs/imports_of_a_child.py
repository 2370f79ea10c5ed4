"""Print which modules a forked child imports for its first id: HOW URL POOL.

HOW: the name of an integration, which the parent imports, of a function that it calls, or of a kind of workers whose
parent, gunicorn's arbiter, it is.
"""

import importlib
import os
import sys
from types import SimpleNamespace

import snowredis

how, url, pool = sys.argv[1:4]
if how == "preload":
    snowredis.preload()
elif how == "configure":
    snowredis.configure(url=url, pool=pool)
elif how in ("sync", "gevent"):
    from gunicorn.config import Config

    from snowredis.integrations import gunicorn

    settings = Config()
    settings.set("worker_class", how)
    gunicorn.on_starting(SimpleNamespace(cfg=settings))
    # what configure() takes, without redis
    importlib.import_module("snowredis.process_generator")
else:
    importlib.import_module(f"snowredis.integrations.{how}")
before = set(sys.modules)
if not os.fork():
    snowredis.configure(url=url, pool=pool)
    snowredis.next_id()
    print(*sorted(set(sys.modules) - before), flush=True)
    snowredis.close()
    os._exit(0)
os.wait()
