"""Fork while a signal handler raises an exception: print what comes out of the program, and when.

URL POOL ENDS RAISED. ENDS: the thread that watches ends before forks. RAISED: "ctrl-c", or what the handler raises.
The thread is made to look until the handler was called. It sends the signal itself, when the fork waits for it.
"""

import os
import signal
import sys
import threading
import time

import snowredis
from snowredis.snowflake import parent

url, pool, ends, raised = sys.argv[1:]
parent.ENDS_BEFORE_FORKS = bool(ends)
parent.TALK_TIMEOUT_S = 10.0
looking = []
handled = []


def waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code is not parent.ParentWatch._wait.__code__:
        frame = frame.f_back
    return frame is not None


def look(watch):
    looking.append(1)
    deadline = time.monotonic() + 10
    while not waits() and time.monotonic() < deadline:
        time.sleep(0.001)
    # from being called to waiting
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGALRM)
    while not handled and time.monotonic() < deadline:
        time.sleep(0.001)
    looking.pop()
    return True


def handler(number, frame):
    forking = sys._getframe(1)
    while forking and forking.f_code.co_name != "_before_fork":
        forking = forking.f_back
    print("in the fork" if forking else "elsewhere")
    handled.append(1)
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
try:
    fork()
    for _ in range(1000):
        time.sleep(0.01)
    print("lost")
except (KeyboardInterrupt, SystemExit) as error:
    print(repr(error))
sys.stdout.flush()
os._exit(0)
