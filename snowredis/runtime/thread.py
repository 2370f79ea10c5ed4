"""Start a thread, with a bounded wait for it."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

# a thread runs within a millisecond; on a busy machine the caller need not wait for it
_LONGEST_WAIT_S = 0.1


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread that calls *run*, and return when it runs. Blocks 0.1 s at most.

    threading.Thread.start() waits without a limit: a child that a signal handler forks during that wait has no such
    thread, and would wait forever.

    Raises:
        RuntimeError: the system has no more threads, or the interpreter is about to end.
    """
    waiting = _thread.allocate_lock()
    waiting.acquire()

    def begin() -> None:
        waiting.release()
        threading.current_thread().name = name
        run()

    _thread.start_new_thread(begin, ())
    waiting.acquire(timeout=_LONGEST_WAIT_S)
