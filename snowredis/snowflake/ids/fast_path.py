"""The fast path: take the next id of a range of ticks. Written twice: in _fastpath.c in C, and in pure_path.py.

A *TickRange* is a decision of allocator.py: ids of these ticks, of this lane of this lease, may be made. Taking an
id reads the clock. Within the last tick it takes the tick's next id; when the clock shows a later tick of the range, it
*opens* that tick: it takes the tick's first id. All else is left to the slow path: the end of the range, an exhausted
tick, a clock that went back. allocator.py publishes and seals ranges through _supersede(), which is one indivisible
step for signal handlers, other threads, forks and tracers, as is the opening of a tick.

This module chooses the implementation: C if it was built, unless SNOWREDIS_PURE is set when this is imported.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snowredis.process.clock import SystemClock

if TYPE_CHECKING:
    from snowredis.snowflake.ids.pure_path import PureFastPath

    FastPath = PureFastPath

# makes an id with the process' generator; binds that. next_id() is always the same object: users import it by name
next_id: Callable[[], int]
bind: Callable[[FastPath | None, Callable[[], int]], None]
IMPLEMENTATION: str


def _load_c() -> Any:
    """Return the module in C; None if it was not built, does not load, or is not wanted."""
    name = "snowredis.snowflake.ids._fastpath"
    if os.environ.get("SNOWREDIS_PURE", "0") not in ("", "0"):
        return None
    try:
        return importlib.import_module(name)
    except (ImportError, SystemError) as error:
        # SystemError: built with the GIL, and this Python has none
        if not isinstance(error, ModuleNotFoundError) or error.name != name:
            warnings.warn(
                f"{name} was built but does not load, so ids are made in pure Python, which is slower: {error}. "
                "Reinstall snowredis, or set SNOWREDIS_PURE=1 to use pure Python without this warning.",
                RuntimeWarning,
                stacklevel=2,
            )
        return None


if not TYPE_CHECKING:
    if _c := _load_c():
        FastPath, IMPLEMENTATION, next_id, bind = _c.FastPath, "c", _c.next_id, _c.bind
        # one clock for both: the slow path would read another one in a test that has frozen the time. An extension that
        # was built before has none
        SystemClock.time_ns = staticmethod(getattr(_c, "time_ns", SystemClock.time_ns))
    else:
        from snowredis.snowflake.ids import pure_path as _python

        FastPath, IMPLEMENTATION, next_id, bind = _python.PureFastPath, "python", _python.next_id, _python.bind
