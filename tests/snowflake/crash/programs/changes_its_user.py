"""Make an id, become another user, close, and print whether a crash record is still in memory: URL, pool, layout."""

import os
import sys
from pathlib import Path

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout=sys.argv[3], ttl=3.0)
ids.next_id()
os.setuid(65534)
ids.next_id()
ids.close()
print(os.environ["SNOWREDIS_CRASH_RECORDS"] in Path("/proc/self/maps").read_text())
