"""Fork where the clock is read in a step that a coroutine takes."""

import os
import sys
import time

import snowredis
from tests.snowflake.generator.programs.forking_clock import ForkingClock

clock = ForkingClock()
ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="game", clock=clock)
made = [ids.next_id()]
# the window of a block ends before its tick of 10 s does, and this is taken under the lock
time.sleep(0.3)
clock.fork_in = 1
made.append(ids._slow_path.try_step()[0])
if clock.child:
    assert made[1] == 0
    print("child", ids.next_id(), flush=True)
    os._exit(0)
assert os.waitpid(clock.pid, 0)[1] == 0
print("parent", *made)
ids.close()
