"""Find out that this process is a copy of another, before it makes one id of the other's.

Two ways, for two kinds of fork. Python's own (os.fork, multiprocessing, uWSGI) run a hook in the
child. A fork in C that bypasses Python is found by a page of memory that the kernel gives to
children as zeros (MADV_WIPEONFORK, Linux 4.14); ``alive`` reads it for the price of a truth test.
Where there is no such page, the pid is compared whenever a tick begins.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

# <bits/mman-linux.h>; Python's mmap names it from 3.13 on only
MADV_WIPEONFORK = 18


class Forkable(Protocol):
    def _after_fork(self) -> None:
        """Make a child's copy harmless: new locks, no lease, no ids left. Must not block or raise; may run twice."""


class ForkGuard:
    """One for the process. ``generation`` changes in every child; ``alive`` is false in one that nobody told."""

    def __init__(self) -> None:
        self.generation = 0
        # in C, its first byte is read
        self.alive: Any = b"\1"
        self._page: Any = None
        self._pid = 0
        self._members: weakref.WeakSet[Forkable] = weakref.WeakSet()
        # a signal handler may make a generator while its thread is making one
        self._lock = threading.RLock()

    def watch(self, member: Forkable) -> None:
        """Tell *member* about every fork from now on."""
        with self._lock:
            if not self._pid:
                self._start()
            self._members.add(member)

    def _start(self) -> None:
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._after_fork)
        try:
            import ctypes
            import mmap

            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(MADV_WIPEONFORK)
        except (ImportError, AttributeError, OSError, ValueError):
            return
        page[0] = 1
        # a ctypes object is true while its memory is not zero: a check without a call
        self._page, self.alive = page, ctypes.c_ubyte.from_buffer(page)

    def check(self) -> None:
        """If this is a child that nobody told, make it harmless now. Called before each tick, network or exit."""
        if not self.alive or (self._page is None and os.getpid() != self._pid):
            self.recover()

    def _after_fork(self) -> None:
        # unless a hook that ran before this one made an id, which made this child harmless: it has a lease by now
        if not self.alive or os.getpid() != self._pid:
            self.recover()

    def recover(self) -> None:
        """Runs in the child, in its only thread."""
        self._lock = threading.RLock()
        self.generation += 1
        generation = self.generation
        for member in list(self._members):
            # a signal handler that made an id meanwhile has done all of this, and has a lease by now
            if self.generation != generation:
                return
            member._after_fork()
        self._pid = os.getpid()
        # last: until then, whoever wants an id in a handler finds that this is a child
        if self._page is not None and self.generation == generation:
            self._page[0] = 1


GUARD = ForkGuard()
