"""docs/explanation/what-your-process-runs.md: the code that it counts is the code that a living process runs."""

from __future__ import annotations

import subprocess
import sys

from scripts._docs import loaded
from snowredis.core.layout import Layout
from snowredis.servers.scripts import PROLOGUE
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import SCRIPTS
from snowredis.worker_pool import WorkerPool
from tests.support.servers import RedisServer

LIFE = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import snowredis
with snowredis.connect(sys.argv[1], pool="what-runs") as ids:
    ids.next_id(), ids._beat()
print(*sorted(name for name in sys.modules if name.split(".")[0] == "snowredis"))
print(*sorted({name for name in opened if name.endswith(".lua")}))
"""


def test_the_page_counts_what_a_process_loads_that_claims_renews_and_releases(server: RedisServer) -> None:
    assert WorkerPool(server.url, "what-runs").create(PoolConfig(name="what-runs", layout=Layout()))
    command = [sys.executable, "-c", LIFE, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    modules, scripts = (line.split() for line in done.stdout.splitlines())
    assert modules == loaded.loaded_modules()
    read = {name.rpartition("/")[2].removesuffix(".lua") for name in scripts}
    assert read == {*PROLOGUE, "pool", *SCRIPTS}
