"""Make ids in a signal handler that comes while claims are made."""

import signal
import sys
import time

import snowredis

made, refused, handlers = [], 0, 0
# a slow machine is still in one when the next signal comes
MOST_HANDLERS = 5


def handle(number, frame):
    global refused, handlers
    if handlers == MOST_HANDLERS:
        return
    handlers += 1
    try:
        made.append(ids.next_id())
    except snowredis.StoreUnavailable as error:
        assert "signal handler" in str(error), error
        refused += 1
    except snowredis.GeneratorClosed:
        refused += 1
    finally:
        handlers -= 1


ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0003)
until_s = time.monotonic() + 20
for turn in range(150):
    # on a busy machine, the next signal is there before the program has gone on
    if turn >= 20 and time.monotonic() > until_s:
        break
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
    made += [ids.next_id() for _ in range(50)]
    ids.close()
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(set(made)) == len(made)
print(len(made), refused)
