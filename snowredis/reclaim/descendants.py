"""Give back the leases of all descendants of this process that die: os.fork, multiprocessing, celery, rq.

watch_descendants() registers hooks that run at each fork by Python. Before the first one a channel is made, which all
descendants inherit, and after it a thread is started in this process, which waits for their deaths; the descendants
have neither, and need none. Once this process has ended, the leases of descendants that are killed end by their ttl;
the next process that forks makes a channel of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys

from snowredis.reclaim.channel import Channel
from snowredis.reclaim.reaper import Reaper
from snowredis.runtime.process import THIS

# pidfds are Linux 5.3 and Python 3.9; gevent removes epoll, and its threads are greenlets
AVAILABLE = (
    sys.platform == "linux"
    and hasattr(os, "pidfd_open")
    and hasattr(os, "memfd_create")
    and hasattr(select, "epoll")
)
# a fork waits for this time at most while the thread imports a Redis client: the child could not import it then
IMPORT_TIMEOUT_S = 2.0


class _Descendants:
    """The hooks, and the channel and the reaper of this process."""

    def __init__(self) -> None:
        self._registered = False
        self._channel: Channel | None = None
        self._reaper: Reaper | None = None
        # those of an ancestor that has ended, and those whose descriptors the program closed: never collected, since
        # that would close whatever has these numbers now
        self._abandoned: list[tuple[Channel, Reaper | None]] = []

    def watch(self) -> None:
        """Register the hooks, unless that was done."""
        if AVAILABLE and not self._registered:
            self._registered = True
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_in_parent,
                after_in_child=self._after_in_child,
            )

    def _before_fork(self) -> None:
        # imports nothing: a module could register hooks of its own, of which only the second half would run now
        # no more descriptors: the leases of killed children end by their ttl
        with contextlib.suppress(OSError):
            if self._channel is None or not self._channel.is_usable:
                if self._channel is not None:
                    self._abandoned.append((self._channel, self._reaper))
                self._channel = Channel()
                self._reaper = Reaper(self._channel)
        if self._reaper is not None:
            self._reaper.importing.acquire(timeout=IMPORT_TIMEOUT_S)

    def _after_in_parent(self) -> None:
        if self._reaper is not None:
            # not acquired in time
            with contextlib.suppress(RuntimeError):
                self._reaper.importing.release()
            self._reaper.start()

    def _after_in_child(self) -> None:
        reaper, self._reaper = self._reaper, None
        channel = self._channel
        if channel is None:
            return
        if channel.is_intact:
            if reaper is not None:
                reaper.after_fork()
            channel.after_fork()
        else:
            self._abandoned.append((channel, reaper))
        THIS.crash_records = channel


_DESCENDANTS = _Descendants()


def watch_descendants() -> None:
    """Give the leases of this process' descendants back from now on, if they die. Idempotent; starts nothing yet.

    Not for a program that closes all of its descriptors after its first fork.
    """
    _DESCENDANTS.watch()
