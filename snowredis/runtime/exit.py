"""Give leases back when the interpreter exits, within a bound, without a word of complaint."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Protocol

# an exit may be held up this long in all, however many generators there are and however dead Redis is
EXIT_BOUND_S = 3.0


class Closable(Protocol):
    def close(self) -> None:
        """Give back what is held. Must not raise."""


class ExitHook:
    """One for the process; registered with the interpreter when the first generator is made."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[Closable] = weakref.WeakSet()
        # what outlives its generator, and the process that it belongs to: not to a forked child
        self._held: dict[Closable, int] = {}
        self._registered = False
        self._lock = threading.Lock()

    def watch(self, member: Closable) -> None:
        """Close *member* at exit if it still exists then."""
        with self._lock:
            if not self._registered:
                self._registered = True
                atexit.register(self.close_all)
            self._members.add(member)

    def hold(self, member: Closable) -> None:
        """Keep *member* and close it at exit, unless it is dropped before."""
        self._held[member] = os.getpid()

    def drop(self, member: Closable) -> None:
        self._held.pop(member, None)

    def close_all(self) -> None:
        deadline_s = time.monotonic() + EXIT_BOUND_S
        held = [member for member, pid in list(self._held.items()) if pid == os.getpid()]
        for member in [*self._members, *held]:
            if time.monotonic() >= deadline_s:
                break
            member.close()


EXIT = ExitHook()
