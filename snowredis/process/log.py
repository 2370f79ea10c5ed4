"""The log of snowredis. An error of the application's logging filters and handlers is printed, and changes nothing.

A filter that adds the id of a request may raise outside of requests, and a handler while its server is away. What a
thread or a hook of ours does must not depend on that.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

from snowredis.process.threads import is_interruption, start_thread

# arguments of Log._send()
_Line = tuple[int, str, tuple[object, ...], dict[str, Any]]
# how long lines that were kept, and lines of other threads, are waited for. The hub of gevent cannot wait, and raises
# AssertionError
_LONGEST_WAIT_S = 0.2


class Log:
    """Passes lines to a *logger*, by default the logger "snowredis". No method raises.

    Only what a signal handler or another thread raises here goes on, and a SystemExit that ends the program.
    """

    def __init__(self, logger: Any = None) -> None:
        self._logger = logger or logging.getLogger("snowredis")
        # lines of threads in kept()
        self._kept: dict[int, list[_Line]] = {}
        # held while a line is written, and during a fork: the lock of a file to which another thread was writing would
        # stay locked in the child for ever
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep this thread's lines during the with block, which may run in a signal handler, and log them at its end.

        A handler of logging may wait for a lock, such as that of a queue, that the interrupted call of this thread
        holds, or for a server. So another thread logs them; it is waited for for a moment, and at exit there is none.
        """
        lines = self._kept.setdefault(threading.get_ident(), [])
        try:
            yield
        finally:
            self._kept.pop(threading.get_ident(), None)
            # copied: this may run in a signal handler that came while this runs
            self._send_elsewhere(lines.copy())
            lines.clear()

    def _send_elsewhere(self, lines: list[_Line]) -> None:
        running = threading.Lock()
        running.acquire()

        def send() -> None:
            while lines:
                level, text, args, options = lines.pop(0)
                self._send(level, text, args, **options)
            with contextlib.suppress(RuntimeError):
                running.release()

        if lines:
            try:
                start_thread(send, "snowredis-log")
                running.acquire(timeout=_LONGEST_WAIT_S)
            except RuntimeError:
                # the exit of the interpreter has begun
                pass
            except AssertionError:
                # the hub of gevent interrupts no call
                send()

    def before_fork(self) -> None:
        """Wait until no other thread writes a line, 0.2 s at most."""
        with contextlib.suppress(AssertionError):
            self._lock.acquire(timeout=_LONGEST_WAIT_S)

    def after_fork(self) -> None:
        """Let lines be written again, in the parent process."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Replace the lock: the thread that holds it may not exist here."""
        self._lock = threading.RLock()

    def debug(self, text: str, *args: object) -> None:
        self._send(logging.DEBUG, text, args)

    def info(self, text: str, *args: object) -> None:
        self._send(logging.INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        self._send(logging.WARNING, text, args)

    def error(self, text: str, *args: object) -> None:
        self._send(logging.ERROR, text, args)

    def critical(self, text: str, *args: object) -> None:
        self._send(logging.CRITICAL, text, args)

    def exception(self, text: str, *args: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._send(logging.ERROR, text, args, exc_info=sys.exc_info())

    def log(self, level: int, text: str, *args: object) -> None:
        self._send(level, text, args)

    def _send(self, level: int, text: str, args: tuple[object, ...], **options: Any) -> None:
        if self._kept and (lines := self._kept.get(threading.get_ident())) is not None:
            if self._logger.isEnabledFor(level):
                lines.append((level, text, args, options))
            return
        lock, acquired = self._lock, False
        try:
            # for a moment only: a finalizer may log while its thread holds the lock of a handler
            with contextlib.suppress(AssertionError):
                (acquired,) = map(lock.acquire, (True,), (_LONGEST_WAIT_S,))
            # the third frame up is that of the caller
            self._logger.log(level, text, *args, stacklevel=3, **options)
        except (Exception, SystemExit) as error:
            # in other threads than the main thread, a SystemExit ends no program
            ends = isinstance(error, SystemExit) and threading.current_thread() is threading.main_thread()
            if ends or is_interruption(error):
                raise
            if logging.raiseExceptions:
                _print(error, text, args)
        finally:
            if acquired:
                lock.release()


def _print(error: BaseException, text: str, args: tuple[object, ...]) -> None:
    """Print a line that could not be logged, as logging does. Does nothing where nobody can see it."""
    with contextlib.suppress(Exception):
        reason = f"{type(error).__name__}: {error}"
        print(
            f"snowredis: a filter or handler of logging raised {reason}. The line was: {text % args}", file=sys.stderr
        )


log = Log()
