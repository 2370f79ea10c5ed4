"""Fork with and without the hooks of Python, and print every number that was made. Arguments: URL, tag."""

import ctypes
import os
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

end(made)
