"""Fork in every way, also inside next_id(), and print every number that was made. Arguments: URL, tag."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from snowredis.numbers.segments import open_generator

url, tag = sys.argv[1:]
ids = open_generator(url, tag=tag, step=7, max_step=7)
made: list[int] = [ids.next_id() for _ in range(3)]
libc = ctypes.PyDLL(None)


def end(numbers: list[int]) -> None:
    """Write the numbers of a child, and end it."""
    os.write(1, "".join(f"{number}\n" for number in numbers).encode())
    os._exit(0)


def children_of(fork: Callable[[], int], count: int) -> None:
    for _ in range(count):
        pid = fork()
        if pid == 0:
            mine = [ids.next_id() for _ in range(20)]
            grandchild = os.fork()
            if grandchild == 0:
                end(ids.next_ids(20))
            os.waitpid(grandchild, 0)
            end(mine)
        made.append(ids.next_id())
        os.waitpid(pid, 0)


children_of(os.fork, 2)
# a fork that bypasses Python's hooks
children_of(libc.fork, 2)

fired = in_child = False


def fork_here(*_: object) -> None:
    """Fork inside whatever the thread does; the call that was interrupted goes on in both processes."""
    global fired, in_child
    fired = True
    pid = os.fork()
    if pid == 0:
        in_child = True
    else:
        os.waitpid(pid, 0)


signal.signal(signal.SIGALRM, fork_here)
for attempt in range(25):
    fired = False
    signal.setitimer(signal.ITIMER_REAL, 0.0005 + attempt / 5000)
    while not fired:
        number = ids.next_id()
        if fired and in_child:
            # a handler that forks after next_id() has returned duplicates its value like any other variable
            end(ids.next_ids(10))
        made.append(number)
end(made)
