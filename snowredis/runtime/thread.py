"""Start a thread, and wait for it no longer than can be waited in vain."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

# a thread runs within a millisecond; on a busy machine whoever started it need not wait for it
_LONGEST_WAIT_S = 0.1


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread that calls *run*, and return when it runs, or after a tenth of a second.

    threading.Thread.start() waits without a bound: in a child that a signal handler forks within that wait there is no
    such thread, and the child would wait for ever.

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
