"""Find the tests that start a server or a process, or wait for a timer of the system, by their code."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

# what the code names that starts a process
PROCESSES = {"Popen", "fork", "posix_spawn", "spawnv", "ProcessPoolExecutor", "runpytest_subprocess"}
PROCESSES |= {"subprocess", "multiprocessing", "redis_server", "tests.support.warm"}
# these make a server of the test's own that never replies, whose clients wait for their time-outs
PROCESSES |= {"listen", "create_server"}
TIMERS = {"setitimer", "alarm", "pthread_kill"}
# fixtures that are one, and parameters with which a fixture that chooses another one by its name chooses none of them
FIXTURES = {"server", "own_server", "server_url", "postgresql_server", "mariadb_server", "pgbouncer_of"}
IN_MEMORY = {"memory", "sqlite"}
# events of sys.audit() of a process that starts
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec"}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield the function that *value* is, or the methods of a class, if they belong to the tests."""
    value = inspect.unwrap(value) if callable(value) else value
    value = getattr(value, "_get_wrapped_function", lambda: value)()
    if not str(getattr(value, "__module__", "")).startswith(("tests", "conftest")):
        return
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, type):
        for member in vars(value).values():
            yield from _functions_of(getattr(member, "__func__", member))


@functools.cache
def calls_of(function: FunctionType) -> frozenset[str]:
    """Return the names in the code of *function*, and of all functions of the tests that it may call."""
    names: set[str] = set()
    found, seen = [function], {function}
    while found:
        current = found.pop()
        for code in _codes(current.__code__):
            names.update(code.co_names)
            for name in code.co_names:
                value = current.__globals__.get(name)
                if inspect.ismodule(value):
                    names.add(value.__name__)
                    continue
                inner = [one for one in _functions_of(value) if one not in seen]
                seen.update(inner)
                found += inner
    return frozenset(names)


def starts_something(item: pytest.Item) -> bool:
    """Return whether the code of a test, or of one of its fixtures, starts a server or a process."""
    if not isinstance(item, pytest.Function):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs
    if FIXTURES & fixtures.keys():
        return True
    functions = [item.function, *(one.func for several in fixtures.values() for one in several)]
    names = {name for one in functions for inner in _functions_of(one) for name in calls_of(inner)}
    if "getfixturevalue" in names:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        return not any(value in IN_MEMORY for value in parameters if isinstance(value, str))
    return bool(names & (PROCESSES | TIMERS))


class Watch:
    """Note of the processes that were started since the last look."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if event in EVENTS:
            self._seen.append(event)

    def seen(self) -> list[str]:
        """Return the events since the last call."""
        seen, self._seen = self._seen, []
        return seen
