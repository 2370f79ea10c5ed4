"""The heartbeat thread of a generator, and what happens at the end of the process.

Leases are released when the interpreter exits, within a time limit, without raising.

How the process ends is noted where other processes find it after a lease could not be released (EndNotes). No signal
gets a handler for that: what SIGTERM does is up to the program, and to close_on_sigterm() if the program calls it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn, Protocol

from snowredis.process.fork import ForkGuard, listed, run_in_forked_children
from snowredis.process.threads import start_thread, with_lock

log = logging.getLogger("snowredis")

# the longest that an exit is delayed, however many generators there are, even if Redis does not reply
EXIT_BOUND_S = 3.0
# a thread that waits ends within a millisecond; one that talks to Redis may need seconds
_LONGEST_WAIT_S = 0.2
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
        # a thread, and what it does when it has finished its conversation with the store
        self._postponed: tuple[int, Callable[[], None]] | None = None

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
        self._postponed = None

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

    def postpone(self, action: Callable[[], None]) -> None:
        """Let *action* run in this thread when its conversation with the store is over."""
        self._postponed = threading.get_ident(), action

    def run_postponed(self) -> None:
        """Run what this thread postponed, if anything. Called at the end of each conversation with the store."""
        postponed = self._postponed
        if postponed is not None and postponed[0] == threading.get_ident():
            self._postponed = None
            postponed[1]()

    @property
    def members(self) -> list[Closable]:
        """The members of close_at_exit() that still exist."""
        return listed(self._members)

    def close_all(self) -> None:
        """Close all members. Blocks for EXIT_BOUND_S, and for one close() more."""
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


class Beating(Protocol):
    """An object that the heartbeat thread calls: a generator."""

    def _beat(self) -> float:
        """Renew or replace the lease as needed; return the seconds until the next call. Must not raise."""


class Heartbeat:
    """Calls ``_beat()`` of a generator until it is stopped; calls *abandon* if that was dropped without close().

    A forked child may inherit it, as a greenlet of gevent: there it ends.
    """

    def __init__(self, generator: Callable[[], Beating | None], abandon: Callable[[], None], guard: ForkGuard) -> None:
        self._guard, self._generation = guard, guard.generation
        self._stopped = threading.Event()
        # this lock is held until the thread ends
        self._running = threading.Lock()
        self._thread = 0
        self._generator, self._abandon = generator, abandon

    def start(self, first_s: float, name: str) -> None:
        """Start a thread called *name*, whose first call comes after *first_s*.

        Raises:
            RuntimeError: the system refuses a thread.
        """
        self._running.acquire()
        start_thread(lambda: self._run(first_s), name)
        EXIT.hold(self)

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the thread to end, after stop(): Python aborts if an interpreter ends that has another thread.

        Blocks for 0.2 s at most: a finalizer or a signal handler may have interrupted what the thread waits for, and
        in a child that was forked just now there is no thread.
        """
        EXIT.drop(self)
        if self._thread == threading.get_ident():
            return
        # gevent raises it in its hub, which cannot wait
        with contextlib.suppress(AssertionError):
            if self._running.acquire(timeout=_LONGEST_WAIT_S):
                self._running.release()

    def close(self) -> None:
        """End, at exit. Release the lease if the generator was dropped since the last beat: nobody else would."""
        self.stop()
        if self._generator() is None:
            self._abandon()
        self.join()

    def _run(self, delay_s: float) -> None:
        self._thread = threading.get_ident()
        try:
            self._beat(delay_s)
        finally:
            # released last, so that the thread has ended when another one can run
            self._running.release()

    def _beat(self, delay_s: float) -> None:
        while not self._stopped.wait(delay_s):
            if self._guard.forked_since(self._generation):
                return
            generator = self._generator()
            if generator is None:
                EXIT.drop(self)
                self._abandon()
                return
            delay_s = generator._beat()
            del generator


class End(IntEnum):
    """End of a process, as it noted itself. Every end but KILLED was chosen, and counts as no death.

    KILLED is what stays when nothing was noted: kill -9, a crash, a lost machine, or a signal that ended the process
    before Python code ran, such as SIGTERM in a program that does not handle it.
    """

    KILLED = 0
    EXIT = 1
    OS_EXIT = 2
    SIGTERM = 3


class NotesEnd(Protocol):
    """An object that notes how its process ends: the file of a crash record."""

    def note_end(self, end: End) -> None:
        """Note *end* unless an end was noted before. Does nothing in a forked child."""


class EndNotes:
    """Lets crash records note how this process ends, from the first one on: at exit, os._exit(), close_on_sigterm()."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[NotesEnd] = weakref.WeakSet()
        self._is_installed = False
        # the process that is at its end: what is added there from then on is noted at once
        self._exiting_pid = 0

    def add(self, member: NotesEnd) -> None:
        """Let *member* note the end of this process, too, as long as it exists."""
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
