"""Tell errors that came from outside, such as the time limit of a job, from those of the code that was running.

They have to reach the application, even through code that expects errors of Redis or of files, and they may be of any
class: TimeoutError, or one that only the application knows. So an error is a signal handler's if one of the functions
that it passed is a handler now.
"""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

_OWN_MODULES = {*sys.stdlib_module_names, "snowredis", "redis"}


def raised_by_handler(error: BaseException | None, handled: BaseException | None) -> BaseException | None:
    """Return the error of a signal handler that *error* is, or in whose place it was raised; None if there is none.

    Args:
        handled: what was being handled, sys.exc_info()[1], before the code began that raised *error*.
    """
    while error is not None and error is not handled:
        if _passed_handler(error.__traceback__):
            return error
        error = error.__context__
    return None


def is_interruption(error: BaseException) -> bool:
    """Return whether a signal handler, or another thread by PyThreadState_SetAsyncExc(), raised *error* here."""
    if _passed_handler(error.__traceback__):
        return True
    raised_in = [frame.f_globals.get("__name__", "") for frame in _frames(error.__traceback__)][-1:]
    # a class that the code where it was raised does not know
    return not _is_own(type(error).__module__) and all(map(_is_own, raised_in))


def _passed_handler(traceback: TracebackType | None) -> bool:
    """Return whether one of the functions of *traceback* is a signal handler."""
    codes = {frame.f_code for frame in _frames(traceback)}
    return any(code in codes for code in _codes_of_handlers())


def _codes_of_handlers() -> Iterator[CodeType]:
    """Yield the code of each signal handler that is written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not callable(handler):
            continue
        # of a function or method, else of an object that can be called
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if code is not None:
            yield code


def _frames(traceback: TracebackType | None) -> list[FrameType]:
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN_MODULES
