"""The thread that keeps a generator's lease alive. Holds no reference that keeps the generator alive."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from snowredis.runtime.exit import EXIT
from snowredis.runtime.thread import start_thread

log = logging.getLogger("snowredis")


class Beating(Protocol):
    def beat(self) -> float:
        """Renew or replace the lease as is due; return the seconds to the next beat. Must not raise."""


class Heartbeat:
    """Calls ``beat()`` until it is stopped; calls *gone* if the generator was dropped without close()."""

    def __init__(self, beating: Beating, first_s: float, name: str, gone: Callable[[], None]) -> None:
        self._stopped = threading.Event()
        self._gone = gone
        self._ref = weakref.ref(beating)
        self._first_s, self._name = first_s, name

    def start(self) -> bool:
        """Whether the thread could be started; without one, renewals happen inside next_id()."""
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
        """At exit: if the generator was dropped since the last beat, nobody else gives its lease back."""
        if self._ref() is None:
            self._gone()

    def _run(self, delay_s: float) -> None:
        while not self._stopped.wait(delay_s):
            beating = self._ref()
            if beating is None:
                EXIT.drop(self)
                self._gone()
                return
            delay_s = beating.beat()
            del beating
