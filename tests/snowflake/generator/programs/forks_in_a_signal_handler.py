"""Fork in a signal handler that comes while ids are made, and append everybody's ids to a file."""

import os
import signal
import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
ids.claim()
in_child = False


def fork(number, frame):
    global in_child
    pid = os.fork()
    if pid == 0:
        in_child = True
        made.clear()
    else:
        forks.append(pid)
        # one at a time: a fork inside the hooks of a fork is more than Python itself can take
        signal.setitimer(signal.ITIMER_REAL, 0.0013)


made, forks = [], []
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
while not in_child and len(forks) < 60:
    an_id = ids.next_id()
    if in_child and snowredis.IMPLEMENTATION == "c":
        # no handler comes into C: this one came when the id was the caller's already
        break
    made.append(an_id)
signal.setitimer(signal.ITIMER_REAL, 0)
if in_child:
    made = made[-1:] + [ids.next_id()]
with open(sys.argv[3], "a") as file:
    file.write("".join(f"{i}\n" for i in made))
if in_child:
    ids.close()
    os._exit(0)
for pid in forks:
    assert os.waitpid(pid, 0)[1] == 0
print(len(forks))
