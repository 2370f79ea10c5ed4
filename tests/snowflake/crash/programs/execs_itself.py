"""Make an id and start again by exec, three times: as a daemon does that restarts itself."""

import os
import sys

import snowredis

url, pool, times = sys.argv[1:]
print(snowredis.connect(url, pool=pool, claim_timeout=0).next_id(), flush=True)
if int(times) > 1:
    program = [sys.executable, "-m", "tests.snowflake.crash.programs.execs_itself", url, pool, str(int(times) - 1)]
    os.execv(sys.executable, program)
