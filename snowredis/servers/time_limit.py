"""One time limit for a whole call, however many servers and round trips it needs.

redis-py limits each connect and each read, so a call that asks several servers one after the other could take the sum.
The connections of snowredis.servers.connections end when the time of the call is over.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

# a connect within a second and a read within another, as with a single server
CALL_LIMIT_S = 2.0

_thread = threading.local()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit this thread's Redis commands in the with block to *seconds*; of nested limits, the nearest counts."""
    outer_s, now_s = getattr(_thread, "deadline_s", math.inf), time.monotonic()
    if outer_s < now_s - CALL_LIMIT_S:
        # that call is over: a signal handler raised at its end, and somebody keeps the error, which refers to it
        outer_s = math.inf
    _thread.deadline_s = min(outer_s, now_s + seconds)
    try:
        yield
    finally:
        _thread.deadline_s = outer_s


def remaining_s() -> float:
    """Return the seconds left to this thread's call: infinity without a limit, 0 or less after its end."""
    deadline_s: float = getattr(_thread, "deadline_s", math.inf)
    return deadline_s - time.monotonic()
