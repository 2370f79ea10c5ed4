"""The exit codes, the errors that each stands for, and how signals interrupt a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import NoReturn

from snowredis import errors
from snowredis.cli.output import printable


class ExitCode(IntEnum):
    """Exit status of a command; scripts may rely on it."""

    OK = 0
    ERROR = 1  # an unexpected error, a failed check, or a question without an answer
    USAGE = 2
    BAD_INPUT = 3  # an id, a layout or a setting that cannot be used
    REDIS_UNAVAILABLE = 4
    POOL_NOT_FOUND = 5
    LAYOUT_MISMATCH = 6
    POOL_EXHAUSTED = 7
    LEASE_OR_CLOCK = 8
    FOUND_ERRORS = 9  # doctor, merge check
    FOUND_CLASHES = 10  # merge check, migrate proof
    SOURCE_UNREADABLE = 11  # merge: a file, a table or a database
    MERGE_REFUSED = 12  # merge draft, merge run
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or a closed terminal


# the first match counts, so subclasses stand before their base classes
_ERRORS: dict[ExitCode, tuple[type[Exception], ...]] = {
    ExitCode.POOL_NOT_FOUND: (errors.PoolNotFound,),
    ExitCode.BAD_INPUT: (errors.ConfigError, errors.LayoutError, errors.InvalidId),
    ExitCode.REDIS_UNAVAILABLE: (errors.StoreUnavailable,),
    ExitCode.LAYOUT_MISMATCH: (errors.LayoutMismatch,),
    ExitCode.POOL_EXHAUSTED: (errors.PoolExhausted,),
    ExitCode.LEASE_OR_CLOCK: (errors.LeaseExpired, errors.ClockMovedBack, errors.ClockSkewed, errors.GeneratorClosed),
}


class CommandError(Exception):
    """Error of a command that is not one of the library's, with its exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message


def missing_extra(error: ImportError, extra: str) -> CommandError:
    """Return the error that names the missing package and the extra that installs it."""
    package = (error.name or "a package").partition(".")[0]
    return CommandError(
        ExitCode.ERROR,
        f"{package} is not installed. Install it with: pip install 'snowredis[{extra}]', "
        f"or in a checkout: pip install '.[{extra}]'",
    )


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code for *error*."""
    if isinstance(error, CommandError):
        return error.code
    if (own := getattr(error, "exit_code", None)) is not None:
        # packages that add commands set it on their errors
        return ExitCode(own)
    return next((code for code, kinds in _ERRORS.items() if isinstance(error, kinds)), ExitCode.ERROR)


def print_error(error: Exception) -> None:
    """Print *error* in one paragraph on stderr. It may hold text from Redis, so control characters are escaped."""
    text = str(error)
    if code_of(error) is ExitCode.ERROR and not isinstance(error, errors.SnowredisError | CommandError):
        text = f"unexpected {type(error).__name__}: {text} (python -X dev -m snowredis … shows where)"
    # one line: a command in it can be copied from a terminal, however narrow that is
    with contextlib.suppress(BrokenPipeError):
        print(f"snowredis: error: {printable(text.replace(chr(10), ' '), 4000)}", file=sys.stderr)


# Windows has no SIGHUP
STOP_SIGNALS = [signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP too, so that leases are released and files removed."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    with _handled(interrupt, *STOP_SIGNALS):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP during cleanup, so that a second Ctrl-C does not leave half of it undone."""
    with _handled(signal.SIG_IGN, signal.SIGINT, *STOP_SIGNALS):
        yield


@contextlib.contextmanager
def _handled(handler: signal._HANDLER, *numbers: signal.Signals) -> Iterator[None]:
    before = {}
    # signal.signal() raises ValueError outside the main thread; there the caller stops the command
    with contextlib.suppress(ValueError):
        for number in numbers:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
