"""The thread that keeps a generator's lease alive. Holds the generator weakly, so that it can be dropped."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from snowredis.runtime.exit import EXIT
from snowredis.runtime.thread import start_thread

log = logging.getLogger("snowredis")


class HasBeat(Protocol):
    def _beat(self) -> float:
        """Renew or replace the lease as needed; return the seconds until the next call. Must not raise."""


class Heartbeat:
    """Calls ``_beat()`` of *owner* until it is stopped; calls *abandon* if the owner was dropped without close()."""

    def __init__(
        self, owner: weakref.ref[HasBeat], first_s: float, name: str, abandon: Callable[[], None]
    ) -> None:
        self._stopped = threading.Event()
        self._abandon = abandon
        self._owner = owner
        self._first_s, self._name = first_s, name

    def start(self) -> bool:
        """Start the thread; return False if the system refuses: renewals then happen inside next_id() only."""
        try:
            start_thread(lambda: self._run(self._first_s), self._name)
        except RuntimeError as error:
            log.warning("no heartbeat thread (%s): leases are renewed only while ids are made", error)
            return False
        EXIT.hold(self)
        return True

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._stopped.set()
        EXIT.drop(self)

    def close(self) -> None:
        """At exit: give the lease back if the owner was dropped since the last beat. Nobody else would."""
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
