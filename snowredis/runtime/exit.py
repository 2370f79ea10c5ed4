"""Give leases back when the interpreter exits, within a bound, without a word of complaint."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import Protocol

# an exit may be held up this long in all, however many generators there are and however dead Redis is
EXIT_BOUND_S = 3.0


class Closable(Protocol):
    def close(self) -> None: ...


class ExitHook:
    """One for the process; registered with the interpreter when the first generator is made."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._registered = False
        self._lock = threading.Lock()

    def watch(self, member: Closable) -> None:
        with self._lock:
            if not self._registered:
                self._registered = True
                atexit.register(self.close_all)
            self._members.add(member)

    def close_all(self) -> None:
        deadline_s = time.monotonic() + EXIT_BOUND_S
        for member in list(self._members):
            if time.monotonic() >= deadline_s:
                break
            member.close()


EXIT = ExitHook()
