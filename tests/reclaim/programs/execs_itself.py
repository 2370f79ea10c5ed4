"""Make an id and start again by exec, three times: as a daemon does that restarts itself."""

import os
import sys

import snowredis
from snowredis.core.layout import Layout

url, pool, times = sys.argv[1:]
# one worker id
layout = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=10)
print(snowredis.connect(url, pool=pool, layout=layout, claim_timeout=0).next_id(), flush=True)
if int(times) > 1:
    program = [sys.executable, "-m", "tests.reclaim.programs.execs_itself", url, pool, str(int(times) - 1)]
    os.execv(sys.executable, program)
