"""Tell errors that came from outside, such as the time limit of a job, from those of the code that was running.

They have to reach the application, also through code that expects errors of Redis or of files, and they may be of any
class: TimeoutError, or one that only the application knows.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType

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
    """Return whether one of the functions of *traceback* got the frame that called it, as signal handlers do."""
    caller: FrameType | None = None
    for frame in _frames(traceback):
        for value in frame.f_locals.values() if caller not in (None, frame) else ():
            # of a handler(*_), too
            if value is caller or (isinstance(value, tuple) and any(item is caller for item in value)):
                return True
        caller = frame
    return False


def _frames(traceback: TracebackType | None) -> list[FrameType]:
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN_MODULES
