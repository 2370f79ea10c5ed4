"""Give leases back when the interpreter exits, within a bound, without a word of complaint."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Protocol

# an exit may be held up this long in all, however many generators there are and however dead Redis is
EXIT_BOUND_S = 3.0
# among multiprocessing's finalizers: after those of queues, whose threads may still want ids
LAST = -1000


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
        self._armed_pid = 0
        # a signal handler may make a generator while its thread is making one
        self._lock = threading.RLock()

    def watch(self, member: Closable) -> None:
        """Close *member* at exit if it still exists then."""
        with self._lock:
            if not self._registered:
                self._registered = True
                atexit.register(self.close_all)
                os.register_at_fork(after_in_child=self._after_fork)
            self._members.add(member)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    def arm(self) -> None:
        """In a child of multiprocessing, which ends without atexit: be the last of its own finalizers."""
        util = sys.modules.get("multiprocessing.util")
        if util is None or self._armed_pid == os.getpid():
            return
        self._armed_pid = os.getpid()
        if sys.modules["multiprocessing.process"].parent_process() is not None:
            util.Finalize(None, self.close_all, exitpriority=LAST)

    def hold(self, member: Closable) -> None:
        """Keep *member* and close it at exit, unless it is dropped before."""
        self._held[member] = os.getpid()

    def drop(self, member: Closable) -> None:
        self._held.pop(member, None)

    @property
    def members(self) -> list[Closable]:
        """What would be closed now, but for what is held."""
        return list(self._members)

    def close_all(self) -> None:
        deadline_s = time.monotonic() + EXIT_BOUND_S
        held = [member for member, pid in list(self._held.items()) if pid == os.getpid()]
        for member in [*self._members, *held]:
            if time.monotonic() >= deadline_s:
                break
            member.close()


EXIT = ExitHook()
