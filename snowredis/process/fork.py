"""Detect that this process is a forked child, before it makes an id of its parent's lease.

There are two kinds of fork. Python's own (os.fork, multiprocessing, uWSGI) run a hook in the child. A fork in C that
bypasses Python is detected by a page of memory that the kernel gives to children as zeros (MADV_WIPEONFORK, Linux
4.14); ``is_reset`` reads it for the price of a truth test. Where there is no such page, the pid is compared whenever a
tick begins.

Each child gets another page: what was not reset there, such as a generator that only a finalizer still reached, never
makes an id of its parent's lease.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from snowredis.process.log import log
from snowredis.process.threads import with_lock

T = TypeVar("T")

# <bits/mman-linux.h>; Python's mmap has the name since 3.13
MADV_WIPEONFORK = 18


def run_in_forked_children(hook: Callable[[], None]) -> None:
    """Call *hook* in every child that is forked by Python. Does nothing on systems without fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hook)


def listed(members: weakref.WeakSet[T]) -> list[T]:
    """Return the members of a set that another thread, or a signal handler, may add to meanwhile."""
    while True:
        try:
            return list(members)
        except RuntimeError:
            # its size changed. No lock: a signal handler would wait for the thread that it interrupted
            continue


class Forkable(Protocol):
    """An object that is reset in a forked child: a generator."""

    def _after_fork(self) -> None:
        """Reset the child's copy: new locks, no lease, no ids. Must not block or raise; may run twice."""


class ForkGuard:
    """Resets the generators of a forked child; one for the process.

    Attributes:
        generation: changes in every child.
        is_reset: an object that is true or false: false in a forked child whose generators were not reset yet. Bytes
            where there is no such page.
    """

    def __init__(self) -> None:
        self.generation = 0
        # the C code reads its first byte
        self.is_reset: Any = b"\1"
        self._pid = 0
        # generation of the last process that forked by os.fork(): this one, or its parent
        self._forked: int | None = None
        self._members: weakref.WeakSet[Forkable] = weakref.WeakSet()
        # a signal handler may make a generator while its thread is making one
        self._lock = threading.RLock()

    @property
    def sees_all_forks(self) -> bool:
        """True if ``is_reset`` is false in every child at once, also after a fork that bypasses Python."""
        return not isinstance(self.is_reset, bytes)

    @property
    def members(self) -> list[Forkable]:
        """All generators of this process that still exist."""
        return listed(self._members)

    @with_lock
    def reset_in_child(self, member: Forkable) -> None:
        """Reset *member* in every forked child, as long as it exists."""
        if not self._pid:
            self._start()
        self._members.add(member)

    def _start(self) -> None:
        self._pid = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork, after_in_parent=log.after_fork, after_in_child=self._after_fork
            )
        self.is_reset = self._new_page()

    def _new_page(self) -> Any:
        """Return the first byte, which is true, of a page that forked children get as zeros; b"\\1" without a page."""
        try:
            import ctypes
            import mmap

            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(MADV_WIPEONFORK)
            # Linux refuses the advice for shared memory: what accepts that, such as an emulator, may follow no advice
            with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as shared:
                try:
                    shared.madvise(MADV_WIPEONFORK)
                except OSError:
                    page[0] = 1
                    # a ctypes object is true while its memory is not zero: a check without a call. It keeps the page
                    return ctypes.c_ubyte.from_buffer(page)
        except (ImportError, AttributeError, OSError, ValueError):
            pass
        return b"\1"

    def check(self) -> None:
        """Reset the generators if this is a child where that was not done. Called before each tick and request."""
        if not self.is_reset or os.getpid() != self._pid:
            self.recover()

    def forked_since(self, generation: int) -> bool:
        """Return whether this is a child of the process that read *generation*; its generators are reset then."""
        self.check()
        return self.generation != generation

    def is_still(self, generation: int) -> bool:
        """Return whether this is the process that read *generation*, and no child of it (step 5, own).

        What was taken since then may be used. Asked last: nothing is called here, nor between this and the use, so no
        signal handler runs that could fork.
        """
        return self.generation == generation if self.is_reset else False

    def in_one_process(self, take: Callable[[], T]) -> T:
        """Return what *take* returns; call it again in a child that is forked meanwhile: that is its parent's."""
        while True:
            # as sees_all_forks, without a call: each batch passes here
            if not self.is_reset or isinstance(self.is_reset, bytes):
                self.check()
            generation = self.generation
            taken = take()
            if self.is_still(generation):
                return taken

    def _before_fork(self) -> None:
        self._forked = self.generation
        log.before_fork()

    def _after_fork(self) -> None:
        log.after_fork_in_child()
        # a hook that ran before this one may have made an id: then this was done, and there is a lease already. Not by
        # the pid alone: in a pid namespace of its own, a child can have that of its parent
        if self._forked == self.generation:
            self.recover()
        self.check()

    def recover(self) -> None:
        """Reset the generators of this process, a forked child, in its only thread. Does not block."""
        generation = self.generation + 1
        # the page comes first: in a child that a signal handler forks in C below, it is wiped
        is_reset = self._new_page()
        members = listed(self._members)
        # a signal handler that made an id meanwhile has done all of this, and has a lease already
        if self.generation == generation:
            return
        self.generation = generation
        self._lock = threading.RLock()
        for member in members:
            if self.generation != generation:
                return
            member._after_fork()
        self._pid = os.getpid()
        # set last: until then, a signal handler that makes an id detects that this is a child
        if self.generation == generation and not self.is_reset:
            self.is_reset = is_reset


GUARD = ForkGuard()
