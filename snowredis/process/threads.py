"""Guards against interruptions at any moment: by another thread, a signal handler, a fork or an exit.

Locks that none of them leaves locked, threads whose start is waited for within a limit, and how to tell the errors of a
signal handler, such as the time limit of a job, from those of the code that was running. The errors of a handler have
to reach the application, even through code that expects errors of Redis or of files, and they may be of any class:
TimeoutError, or one that only the application knows. So an error is a handler's if one of the functions that it passed
is a handler now.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from traceback import walk_tb
from types import CodeType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

# range iterators are not atomic on free-threaded builds, so fast paths in Python take the lock there. Not asked of
# sysconfig, which reads a file for the answer
FREE_THREADED = "free-threading build" in sys.version
# a position past the end of every iterator. Not how many are left: until Python 3.11 the position counts from the
# beginning, and would go back if another thread took some meanwhile
PAST_END = sys.maxsize
# a thread runs within a millisecond; on a busy machine the caller need not wait for it. The interpreter waits longer:
# CPython before 3.11.6 and 3.12.1 ends by SIGSEGV if a thread begins after its state was freed
_LONGEST_WAIT_S, _LAST_WAIT_S = 0.1, 3.0


def exhaust(numbers: Any) -> None:
    """Remove all that is left in *numbers*, a range iterator, in one step of the interpreter.

    It is gone also for a thread, or for a frame below a signal handler, that refers to the iterator already.
    """
    numbers.__setstate__(PAST_END)


class NotAcquired(Exception):
    """Another thread held the lock for too long; the function was not called."""


def locked(lock: Any, function: Callable[..., T], *args: Any, timeout_s: float = -1) -> T:
    """Call *function* with its arguments while *lock* is held, and return its result.

    Python may call a signal handler, which may raise (Ctrl-C, a time limit for a job), after every call and at the
    begin of every function. A lock would stay held if that happened between acquire() and ``try``, or at the begin of
    an __exit__() that is written in Python; and, in Python 3.14, between the __enter__() of a ``with`` statement and
    its block.

    While the interpreter finalizes, a lock that is held is held by a thread that never runs again. The function is
    called without the lock then, as a signal handler in that thread would call it.

    Args:
        timeout_s: how long to wait for the lock; 0: not at all; negative: without a limit.

    Raises:
        NotAcquired: another thread held the lock for so long.
    """
    acquired = False
    is_last = sys.is_finalizing()
    try:
        # no signal handler runs between the acquire() in map() and the assignment: this is no call, but an unpacking
        (acquired,) = map(lock.acquire, (True,), (0 if is_last else timeout_s,))
        if not acquired and not is_last:
            raise NotAcquired
        return function(*args)
    finally:
        if acquired:
            lock.release()


def with_lock(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let a method hold its object's ``_lock`` while it runs, as locked() does."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        return locked(self._lock, functools.partial(method, self, *args, **named))

    return call


class _Starts:
    """Starts threads; at exit, waits for those that do not run yet, and starts none from then on."""

    def __init__(self) -> None:
        # a lock that the thread releases when it runs, and the process that started it
        self._waiting: dict[Any, int] = {}
        self._is_registered = self.ended = False

    def start(self, run: Callable[[], object], name: str) -> None:
        """Start a daemon thread that calls *run*, and return when it runs. Blocks 0.1 s at most.

        threading.Thread.start() waits without a limit: a child that a signal handler forks during that wait has no such
        thread, and would wait forever.

        Raises:
            RuntimeError: the system has no more threads, or the exit of the interpreter has begun.
        """
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._end)
        if self.ended:
            raise RuntimeError("no thread is started: the interpreter is about to end")
        waiting = _thread.allocate_lock()
        waiting.acquire()

        def begin() -> None:
            waiting.release()
            threading.current_thread().name = name
            try:
                run()
            finally:
                # before Python 3.13, threading.enumerate() lists threads of _thread for ever
                getattr(threading, "_active", {}).pop(threading.get_ident(), None)

        self._waiting[waiting] = os.getpid()
        try:
            _thread.start_new_thread(begin, ())
        except BaseException:
            del self._waiting[waiting]
            raise
        self._wait(waiting, _LONGEST_WAIT_S)

    def _wait(self, waiting: Any, seconds: float) -> None:
        if waiting.acquire(timeout=seconds):
            self._waiting.pop(waiting, None)

    def _end(self) -> None:
        """At exit: start no thread from now on, and wait until those that were started run, _LAST_WAIT_S at most."""
        self.ended, until_s = True, time.monotonic() + _LAST_WAIT_S
        for waiting, pid in list(self._waiting.items()):
            # a forked child has none of its parent's threads
            if pid == os.getpid():
                self._wait(waiting, max(0.0, until_s - time.monotonic()))


_STARTS = _Starts()
start_thread = _STARTS.start


def may_start_threads() -> bool:
    """Return False once the exit of the interpreter has begun."""
    return not _STARTS.ended


_OWN_MODULES = {*sys.stdlib_module_names, "snowredis", "redis"}


def raised_since(error: BaseException | None, handled: BaseException | None) -> Iterator[BaseException]:
    """Yield *error*, and the errors in whose place it was raised, the newest first.

    Args:
        handled: what was being handled, sys.exc_info()[1], before the code began that raised *error*.
    """
    while error is not None and error is not handled:
        yield error
        error = error.__context__


def is_interruption(error: BaseException) -> bool:
    """Return whether a signal handler, or another thread by PyThreadState_SetAsyncExc(), raised *error* here."""
    if passed_handler(error):
        return True
    raised_in = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)][-1:]
    # a class that the code where it was raised does not know
    return not _is_own(type(error).__module__) and all(map(_is_own, raised_in))


def passed_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised *error*: one of the functions that it passed is one."""
    codes = {frame.f_code for frame, _ in walk_tb(error.__traceback__)}
    return any(code in codes for code in _codes_of_handlers())


def _codes_of_handlers() -> Iterator[CodeType]:
    """Yield the code of each signal handler that is written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not callable(handler):
            continue
        # a function and a method have their code, an object that can be called has it in its class
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if code is not None:
            yield code


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN_MODULES
