"""The part of greenlet's interface that the simulation uses, on threads: for Pythons that greenlet does not compile on.

One thread runs at a time, and hands over where greenlet would switch. It takes five times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_here = threading.local()


class greenlet:  # noqa: N801 - the name that it has there
    """Function that runs until it switches to another one."""

    def __init__(self, run: Callable[[], object] | None = None, parent: greenlet | None = None) -> None:
        self.parent = parent
        self.dead = False
        self._run_it = run
        self._thread: threading.Thread | None = None
        # held while this one has nothing to do
        self._turn = threading.Lock()
        self._turn.acquire()
        self._thrown: BaseException | None = None

    def switch(self) -> None:
        """Let this one run; return when another one switches back."""
        caller = getcurrent()
        self._go()
        caller._wait()

    def throw(self, kind: type[BaseException]) -> None:
        """Raise *kind* where this one waits, and return as switch() does."""
        if self._thread is None and self._run_it is not None:
            self.dead = True
            raise kind
        self._thrown = kind()
        self.switch()

    def _go(self) -> None:
        if self._thread is None and self._run_it is not None:
            self._thread = threading.Thread(target=self._run, args=(self._run_it,), daemon=True)
            self._thread.start()
        else:
            self._turn.release()

    def _wait(self) -> None:
        self._turn.acquire()
        if (thrown := self._thrown) is not None:
            self._thrown = None
            raise thrown

    def _run(self, run: Callable[[], object]) -> None:
        _here.current = self
        raised: BaseException | None = None
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - it is the parent's to handle
            raised = error
        self.dead = True
        assert self.parent is not None
        self.parent._thrown = raised
        self.parent._go()


def getcurrent() -> greenlet:
    """Return the one that runs; each thread of Python's has a first one."""
    current: greenlet | None = getattr(_here, "current", None)
    if current is None:
        current = _here.current = greenlet()
    return current
