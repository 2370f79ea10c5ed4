"""Raise again what a signal handler raised in a hook of os.fork(), since Python ignores what comes out of a hook.

Without this, Ctrl-C would do nothing if it came while a fork waits for a thread.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
import time
from types import FrameType

# between two looks whether the fork has ended, and how many there are
WAIT_S, MOST_WAITS = 0.005, 200


def raise_after_fork(error: BaseException, forking: FrameType | None) -> None:
    """Raise *error* in this thread once more when *forking*, the frame that called os.fork(), goes on. Does not block.

    A call that blocks is ended by that only if *error* is the KeyboardInterrupt of Python's own handler.
    """
    # no more threads, or the interpreter is about to end
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(_raise_in, (threading.get_ident(), error, forking, _place(forking)))


def _place(frame: FrameType | None) -> int:
    return -1 if frame is None else frame.f_lasti


def _raise_in(thread: int, error: BaseException, forking: FrameType | None, fork_at: int) -> None:
    for _ in range(MOST_WAITS):
        time.sleep(WAIT_S)
        # there are more hooks, of others, too
        if forking is None or _place(forking) != fork_at:
            break
    of_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if type(error) is KeyboardInterrupt and of_python and thread == threading.main_thread().ident:
        signal.pthread_kill(thread, signal.SIGINT)
        return
    # not at the top: a Python that was built without libffi has none, and this is a hook of each fork
    import ctypes

    # only a class can be raised in another thread, which is instantiated there
    once_more = type("Again", (type(error),), {"__new__": lambda _: error})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(once_more))
