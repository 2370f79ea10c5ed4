"""Raise again what a signal handler raised in a hook of os.fork(), since Python ignores what comes out of a hook.

Without this, Ctrl-C would do nothing if it came while a fork waits for a thread.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import signal
import threading
import time

# by then the hooks have ended
SOON_S = 0.01


def raise_soon(error: BaseException) -> None:
    """Raise *error* in this thread once more, in about 10 ms. Does not block.

    A call that blocks is ended by that only if *error* is the KeyboardInterrupt of Python's own handler.
    """
    # no more threads, or the interpreter is about to end
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(_raise_in, (threading.get_ident(), error))


def _raise_in(thread: int, error: BaseException) -> None:
    time.sleep(SOON_S)
    of_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if type(error) is KeyboardInterrupt and of_python and thread == threading.main_thread().ident:
        signal.pthread_kill(thread, signal.SIGINT)
        return
    # only a class can be raised in another thread, which is instantiated there
    once_more = type("Again", (type(error),), {"__new__": lambda _: error})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(once_more))
