"""The end of the process.

Leases are released when the interpreter exits, within a time limit, without raising.

How the process ends is noted where other processes find it after a lease could not be released (EndNotes). No signal
gets a handler for that: what SIGTERM does is up to the program, and to close_on_sigterm() if the program calls it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn, Protocol

from snowredis.process.fork import listed, run_in_forked_children
from snowredis.process.log import log
from snowredis.process.threads import with_lock

# the longest that an exit is delayed, however many generators there are, even if Redis does not reply
EXIT_BOUND_S = 3.0
# priority among multiprocessing's finalizers: after those of queues, whose threads may still make ids
LAST = -1000


class Closable(Protocol):
    """An object that is closed at exit: a generator, or a heartbeat."""

    def close(self) -> None:
        """Release the lease. Must not raise."""


class ExitHook:
    """Closes this process' generators at exit; registered with the interpreter when the first one is made."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[Closable] = weakref.WeakSet()
        # the members that outlive their generators, and the pids that they belong to: not to a forked child
        self._held: dict[Closable, int] = {}
        self._registered = False
        self._armed_pid = 0
        # a signal handler may make a generator while its thread is making one
        self._lock = threading.RLock()
        # a thread, and what it does when it has finished its conversation with the store, or close_all()
        self._postponed: tuple[int, Callable[[], None]] | None = None
        # the thread that runs close_all(); 0: none
        self._closing = 0

    @with_lock
    def close_at_exit(self, member: Closable) -> None:
        """Close *member* at exit if it still exists then."""
        if not self._registered:
            self._registered = True
            atexit.register(self.close_all)
            run_in_forked_children(self._after_fork)
        self._members.add(member)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._postponed, self._closing = None, 0

    def arm(self) -> None:
        """Register with multiprocessing, as its last finalizer, in a child of it: that ends without atexit."""
        util = sys.modules.get("multiprocessing.util")
        if util is None or self._armed_pid == os.getpid():
            return
        self._armed_pid = os.getpid()
        if sys.modules["multiprocessing.process"].parent_process() is not None:
            util.Finalize(None, self.close_all, exitpriority=LAST)

    def hold(self, member: Closable) -> None:
        """Refer to *member* strongly, and close it at exit, until drop()."""
        self._held[member] = os.getpid()

    def drop(self, member: Closable) -> None:
        """Undo hold()."""
        self._held.pop(member, None)

    def run_alone(self, action: Callable[[], None]) -> None:
        """Run *action*, which a signal handler asks for, now, or when this thread may be interrupted.

        Not in the middle of a conversation with the store, nor of close_all(): the locks of a client, or of a handler
        of metrics, may be held there, and are not reentrant.
        """
        self._postponed = threading.get_ident(), action
        self.run_postponed()

    def run_postponed(self) -> None:
        """Run what this thread postponed, if anything. Called at the end of what may not be interrupted."""
        postponed, here = self._postponed, threading.get_ident()
        if postponed is None or postponed[0] != here or self._closing == here:
            return
        if any(getattr(member, "_talks_here", False) for member in self.members):
            return
        self._postponed = None
        postponed[1]()

    @property
    def members(self) -> list[Closable]:
        """The members of close_at_exit() that still exist."""
        return listed(self._members)

    def close_all(self) -> None:
        """Close all members. Blocks for EXIT_BOUND_S, and for one close() more.

        Does nothing in a signal handler that interrupts this very method: that goes on afterwards.
        """
        if self._closing == threading.get_ident():
            return
        self._closing = threading.get_ident()
        try:
            self._close_all()
        finally:
            self._closing = 0
            self.run_postponed()

    def _close_all(self) -> None:
        deadline_s = time.monotonic() + EXIT_BOUND_S
        held = [member for member, pid in list(self._held.items()) if pid == os.getpid()]
        closed: set[Closable] = set()
        # repeated, because another thread may make a generator meanwhile
        while left := [member for member in [*self.members, *held] if member not in closed]:
            for member in left:
                if time.monotonic() >= deadline_s:
                    return
                closed.add(member)
                try:
                    member.close()
                except Exception:
                    # the others have leases to release
                    log.exception("could not close %r at exit", member)


EXIT = ExitHook()


class End(IntEnum):
    """End of a process, as it noted itself. Every end but KILLED was chosen, and counts as no death.

    KILLED is what stays when nothing was noted: kill -9, a crash, a lost machine, or a signal that ended the process
    before Python code ran, such as SIGTERM in a program that does not handle it.
    """

    KILLED = 0
    EXIT = 1
    OS_EXIT = 2
    SIGTERM = 3


class EndNotes:
    """Lets crash records note how this process ends, from the first one on: at exit, os._exit(), close_on_sigterm()."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_installed = False
        # the process that is at its end: what is added there from then on is noted at once
        self._exiting_pid = 0

    def add(self, member: Any) -> None:
        """Let the file of a crash record note the end of this process, too, as long as it exists."""
        if not self._is_installed:
            self._is_installed = True
            atexit.register(self._note_exit)
            os._exit = self._noting(os._exit)  # type: ignore[assignment]  # the same signature
        self._members.add(member)
        if self._exiting_pid == os.getpid():
            member.note_end(End.EXIT)

    def note(self, end: End) -> None:
        """Note how this process ends, unless that was noted before."""
        for member in listed(self._members):
            member.note_end(end)

    def _note_exit(self) -> None:
        self._exiting_pid = os.getpid()
        self.note(End.EXIT)

    def _noting(self, exit_now: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        @functools.wraps(exit_now)
        def _exit(status: int) -> NoReturn:
            # the process has to end
            with contextlib.suppress(Exception):
                self.note(End.OS_EXIT)
            exit_now(status)

        # pickle finds it there: the function may be sent to another process, as to a pool of processes
        _exit.__module__ = os.__name__
        return _exit


ENDS = EndNotes()
