"""Fixtures of every test: settings of the machine are ignored; a private redis-server, and databases.

One redis-server is for the tests that leave it as it is, and one is for a test to kill. Each database server runs once
for all tests of a process; each test makes databases of its own on it.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import coverage
import hypothesis
import pytest

from tests.support import databases
from tests.support.servers import RedisServer, redis_server

TESTS = Path(__file__).parent
# their tests cover snowredis/core and snowredis/snowflake; to measure others, too, makes those twice as slow
MEASURED = {"core", "generators", "ha", "lease", "registry"}

# how long an example takes says how busy the machine is: the first one may import numpy
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") and (measurement := coverage.Coverage.current()):
        # in a worker of pytest-xdist, pytest-cov starts two, of which its marker no_cover stops the other
        measurement.stop()
    # a shell starts background jobs with SIGINT ignored, and the programs that tests start would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] not in MEASURED:
            item.add_marker("no_cover")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one block what was not run, and what is missing."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("not run here")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count:>5}  {reason}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("r")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@contextlib.contextmanager
def database_server(name: str) -> Iterator[databases.DatabaseServer]:
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(databases.SERVERS[name]())
        except databases.MissingDatabase as error:
            pytest.skip(str(error))
        yield running


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[databases.DatabaseServer]:
    with database_server("postgresql") as running:
        yield running


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[databases.DatabaseServer]:
    with database_server("mariadb") as running:
        yield running


@pytest.fixture(scope="session")
def sqlite_server() -> Iterator[databases.DatabaseServer]:
    with database_server("sqlite") as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_kind(request: pytest.FixtureRequest) -> databases.DatabaseServer:
    """Each of the three kinds of databases, one after the other."""
    running: databases.DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return running
