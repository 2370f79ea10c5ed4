"""Services of the process that every generator needs: clock, fork, exit, threads and locks."""

import contextlib
import functools

# imported first: its lock is held during a fork, too, and a thread that loads modules may need it. What is registered
# last is called first
import logging  # noqa: F401
import os
import threading

# processes tell the version of this package, since versions may be mixed in a fleet
VERSION = "0.1.0"
# held while a thread loads modules, and by forks: a child would wait for ever for what another thread was loading
LOADING = threading.RLock()
# a fork waits no longer, whatever else holds the thread up
_LONGEST_WAIT_S = 5.0


def _after_fork() -> None:
    with contextlib.suppress(RuntimeError):
        LOADING.release()


if hasattr(os, "register_at_fork"):
    _before_fork = functools.partial(LOADING.acquire, timeout=_LONGEST_WAIT_S)
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
