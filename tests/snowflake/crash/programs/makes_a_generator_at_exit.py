"""Make ids, and in an exit handler that runs after those of snowredis with another generator: URL."""

import atexit
import sys
from typing import Any

import snowredis
from snowredis.core.layout import Layout

LAYOUT = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=10)
POOL: dict[str, Any] = {"pool": "killed", "layout": LAYOUT, "ttl": 3.0, "max_clock_lead": 0.1, "failover_slack": 0.1}


kept: list[snowredis.SnowflakeGenerator] = []


def make_an_id() -> None:
    kept.append(snowredis.connect(sys.argv[1], **POOL))
    kept[-1].next_id()


atexit.register(make_an_id)
make_an_id()
