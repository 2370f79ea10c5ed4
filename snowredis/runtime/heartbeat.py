"""The thread that keeps a generator's lease alive. Refers to the generator weakly, so that it can be dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from snowredis.runtime.exit import EXIT
from snowredis.runtime.thread import start_thread


class HasBeat(Protocol):
    """An object that the heartbeat thread calls: a generator."""

    def _beat(self) -> float:
        """Renew or replace the lease as needed; return the seconds until the next call. Must not raise."""


class Heartbeat:
    """Calls ``_beat()`` of *owner* until it is stopped; calls *abandon* if the owner was dropped without close()."""

    def __init__(self, owner: Callable[[], HasBeat | None], abandon: Callable[[], None]) -> None:
        self._stopped = threading.Event()
        self._owner, self._abandon = owner, abandon

    def start(self, first_s: float, name: str) -> None:
        """Start a thread called *name*, whose first call comes after *first_s*.

        Raises:
            RuntimeError: the system refuses a thread.
        """
        start_thread(lambda: self._run(first_s), name)
        EXIT.hold(self)

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._stopped.set()

    def close(self) -> None:
        """Give the lease back, at exit, if the owner was dropped since the last beat: nobody else would."""
        if self._owner() is None:
            self._abandon()

    def _run(self, delay_s: float) -> None:
        while not self._stopped.wait(delay_s):
            owner = self._owner()
            if owner is None:
                EXIT.drop(self)
                self._abandon()
                return
            delay_s = owner._beat()
            del owner
