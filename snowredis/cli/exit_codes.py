"""How a command ends: the exit codes, and which error means which. Imports nothing but the errors."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from enum import IntEnum
from typing import NoReturn

from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    ConfigError,
    GeneratorClosed,
    GeneratorSuspended,
    InvalidId,
    LayoutError,
    LayoutMismatch,
    LeaseExpired,
    PoolExhausted,
    PoolNotFound,
    StoreUnavailable,
)


class ExitCode(IntEnum):
    """What the shell gets; scripts may rely on it."""

    OK = 0
    ERROR = 1  # unexpected; a check that failed; a question that was answered with no
    USAGE = 2
    BAD_INPUT = 3  # an id, a layout or a setting that cannot be used
    REDIS_UNAVAILABLE = 4
    POOL_NOT_FOUND = 5
    LAYOUT_MISMATCH = 6
    POOL_EXHAUSTED = 7
    LEASE_OR_CLOCK = 8
    FOUND_ERRORS = 9  # doctor
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or a closed terminal


# the first that fits counts, so kinds stand before what they are kinds of
_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (PoolNotFound, ExitCode.POOL_NOT_FOUND),
    (ConfigError, ExitCode.BAD_INPUT),
    (LayoutError, ExitCode.BAD_INPUT),
    (InvalidId, ExitCode.BAD_INPUT),
    (StoreUnavailable, ExitCode.REDIS_UNAVAILABLE),
    (LayoutMismatch, ExitCode.LAYOUT_MISMATCH),
    (PoolExhausted, ExitCode.POOL_EXHAUSTED),
    (LeaseExpired, ExitCode.LEASE_OR_CLOCK),
    (ClockMovedBack, ExitCode.LEASE_OR_CLOCK),
    (ClockSkewed, ExitCode.LEASE_OR_CLOCK),
    (GeneratorClosed, ExitCode.LEASE_OR_CLOCK),
    (GeneratorSuspended, ExitCode.LEASE_OR_CLOCK),
)


class CommandError(Exception):
    """A command cannot go on, for a reason that is no error of the library."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message


def code_of(error: BaseException) -> ExitCode:
    """The exit code that *error* ends a command with."""
    if isinstance(error, CommandError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.ERROR)


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and a closed terminal unwind the stack as Ctrl-C does, so that leases are given back."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """For cleaning up: a second Ctrl-C must not leave half of it undone."""
    with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _handled(handler: signal._HANDLER, *numbers: signal.Signals) -> Iterator[None]:
    before = {}
    # only the main thread may, and one that is called from elsewhere is stopped by its caller
    with contextlib.suppress(ValueError):
        for number in numbers:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
