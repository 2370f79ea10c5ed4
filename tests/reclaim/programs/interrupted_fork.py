"""Fork while a signal handler raises an exception: print what comes out of the program, and when.

URL POOL ENDS RAISED. ENDS: the thread that watches ends before forks. RAISED: "ctrl-c", or what the handler raises.
The thread is made to look for 0.3 s, for which the fork waits, and the signal comes after 0.1 s.
"""

import os
import signal
import sys
import time

import snowredis
from snowredis.reclaim import parent

url, pool, ends, raised = sys.argv[1:]
parent.ENDS_BEFORE_FORKS = bool(ends)
parent.TALK_TIMEOUT_S = 1.0
looking = []


def look(watch):
    looking.append(1)
    time.sleep(0.3)
    looking.pop()
    return True


def handler(number, frame):
    forking = sys._getframe(1)
    while forking and forking.f_code.co_name != "_before_fork":
        forking = forking.f_back
    print("in the fork" if forking else "elsewhere")
    if raised == "ctrl-c":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        raise SystemExit(int(raised))


def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


signal.signal(signal.SIGALRM, handler)
signal.signal(signal.SIGINT, signal.default_int_handler)
snowredis.configure(url=url, pool=pool)
parent.ParentWatch._look = look
fork()
while not looking:
    time.sleep(0.001)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    fork()
    for _ in range(1000):
        time.sleep(0.01)
    print("lost")
except (KeyboardInterrupt, SystemExit) as error:
    print(repr(error))
sys.stdout.flush()
os._exit(0)
