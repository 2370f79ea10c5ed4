"""Make ids in a signal handler that comes while claims are made."""

import signal
import sys
import time

import snowredis

made, refused, handlers = [], 0, 0
# one within the other
MOST_HANDLERS = 5


def let_it_come():
    """Let one signal come soon: however busy the machine is, the program goes on for a while after each."""
    signal.setitimer(signal.ITIMER_REAL, 0.0003)


def handle(number, frame):
    global refused, handlers
    handlers += 1
    try:
        if handlers < MOST_HANDLERS:
            let_it_come()
        made.append(ids.next_id())
    except snowredis.StoreUnavailable as error:
        assert "signal handler" in str(error), error
        refused += 1
    except snowredis.GeneratorClosed:
        refused += 1
    finally:
        handlers -= 1
        if not handlers:
            let_it_come()


ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
signal.signal(signal.SIGALRM, handle)
let_it_come()
until_s = time.monotonic() + 5
for turn in range(150):
    if turn >= 20 and time.monotonic() > until_s:
        break
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
    made += [ids.next_id() for _ in range(50)]
    ids.close()
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="shardingsphere")
signal.signal(signal.SIGALRM, signal.SIG_IGN)
assert len(set(made)) == len(made)
print(len(made), refused)
