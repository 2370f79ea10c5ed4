"""Release leases when SIGTERM arrives: loaded by programs that call close_on_sigterm()."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from snowredis.errors import ConfigError
from snowredis.process.exit import ENDS, EXIT, End
from snowredis.process.log import log


def close_on_sigterm() -> None:
    """Close this process' generators at SIGTERM, then let the process end as it would have ended without this.

    ``docker stop``, Kubernetes, systemd and ``timeout`` send SIGTERM, which ends Python without its exit handlers: the
    worker id would be available only after one ttl. Call this once, in the main thread; forked children inherit it.

    Afterwards a handler that was there is called; if there was none, the process ends by SIGTERM. That is also so for
    process 1 of a container, which would ignore SIGTERM without a handler. Where SIGTERM is ignored on purpose, it
    stays ignored. A program that makes ids after SIGTERM, to finish its work, does not need this: end it normally.

    Blocks:
        not at all here. At SIGTERM as close() does, for 3 s and one close() more at most.

    Raises:
        ConfigError: this is not the main thread, or SIGTERM has a handler that was not installed from Python.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "close_on_sigterm() was called in another thread than the main thread, where Python cannot install "
            "a signal handler. Call it in the main thread, before threads are started."
        )
    previous = signal.getsignal(signal.SIGTERM)
    if previous is None:
        raise ConfigError(
            "SIGTERM has a handler that was not installed from Python, so it cannot be called afterwards; it was not "
            "replaced. Call snowredis.close() where that program shuts down."
        )
    if previous is not signal.SIG_IGN and not isinstance(previous, CloseAtSignal):
        signal.signal(signal.SIGTERM, CloseAtSignal(previous))


class CloseAtSignal:
    """Signal handler that closes all generators, then does what *previous* did."""

    def __init__(self, previous: signal._HANDLER) -> None:
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal. If its thread is talking to Redis, do so when the reply has come, or none in time."""
        ENDS.note(End.SIGTERM)
        EXIT.run_alone(lambda: self._end(number, frame))

    def _end(self, number: int, frame: FrameType | None) -> None:
        with log.kept():
            EXIT.close_all()
        if callable(self._previous):
            self._previous(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # the kernel ignores a signal without a handler in process 1 of a container
            os._exit(128 + number)
