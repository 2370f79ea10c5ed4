"""One time limit over a whole call, however many servers and round trips the call needs.

redis-py limits each connect and each read. A call that asks several servers one after the other
could take the sum. The connections of lease.connections stop when the time of the call is up.
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
    """Limit all that this thread asks of Redis in the block to *seconds*. Of nested limits the nearer counts."""
    outer_s = getattr(_thread, "deadline_s", math.inf)
    _thread.deadline_s = min(outer_s, time.monotonic() + seconds)
    try:
        yield
    finally:
        _thread.deadline_s = outer_s


def remaining_s() -> float:
    """Return the seconds that are left to this thread's call: infinity without a limit, 0 or less if it has passed."""
    deadline_s: float = getattr(_thread, "deadline_s", math.inf)
    return deadline_s - time.monotonic()
