"""Fixtures of every test: settings of the machine are ignored; a private redis-server, and databases.

One redis-server is for the tests that leave it as it is, and one is for a test to kill. Each database server runs once
for all tests of a process; each test makes databases of its own on it.
"""

import contextlib
import gc
import os
import signal
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.lab.chaos import shim
from tests.support import databases
from tests.support.pgbouncer import pgbouncer
from tests.support.servers import RedisServer, redis_server

TESTS = Path(__file__).parent
# all that is collected in a quick run: elsewhere nearly every test starts something, or copies databases
QUICK = {"core", "kinds", "numbers", "process", "servers", "snowflake"}
# … but these, which count in seconds what others count in ms: schedules, leaks, every bytecode, SQL, ids of days
THOROUGH = {
    *("test_collisions.py", "test_extension.py", "test_interruptions.py"),
    *("test_schedules.py", "test_spread.py", "test_sql.py"),
}
# events of sys.audit() that end a test in a quick run: a process starts, or a server of the test's own. Such a server
# often never replies, and its clients wait for their time-outs
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "socket.bind"}
# how long an example takes says how busy the machine is: the first one may import numpy
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="skip what starts a server or a process")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("quick" if config.option.quick else "any machine")
    if config.option.quick:
        config.pluginmanager.register(NoStarts())
    # a shell starts background jobs with SIGINT ignored, and the programs that tests start would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _separate_crash_records(config)
    # tests say what they are about; that nothing is assumed without it is said in tests/project/test_settings.py
    os.environ |= {"SNOWREDIS_POOL": "default", "SNOWREDIS_URL": "redis://localhost:1/0"}


def _separate_crash_records(config: pytest.Config) -> None:
    """Give this process of pytest crash records of its own: suspend() removes those of all dead processes."""
    memory = databases.memory_directory(0)
    if memory is not None:
        directory = tempfile.TemporaryDirectory(prefix="snowredis-", dir=memory, ignore_cleanup_errors=True)
        os.environ["SNOWREDIS_CRASH_RECORDS"] = directory.name
        config.add_cleanup(directory.cleanup)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.option.quick or not collection_path.is_relative_to(TESTS) or collection_path == TESTS:
        return None
    folder = collection_path.relative_to(TESTS).parts[0]
    # True: do not collect it; None: what pytest would do
    return True if folder not in QUICK or collection_path.name in THOROUGH else None


class NoStarts:
    """Plugin that skips each test at the moment at which it starts something."""

    def __init__(self) -> None:
        self._in_test = False
        sys.addaudithook(self._hear)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._in_test = True
        try:
            return (yield)
        finally:
            self._in_test = False

    def _hear(self, event: str, _: object) -> None:
        if self._in_test and event in STARTS:
            pytest.skip(f"starts something: {event}")


def pytest_collection_finish() -> None:
    # what is loaded by now stays: neither a collection of garbage nor a forked child looks at it again
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def variables_as_they_were() -> Iterator[None]:
    """Remove the variables that configure() has set."""
    before = {name: text for name, text in os.environ.items() if name.startswith("SNOWREDIS_")}
    yield
    for name in [name for name in os.environ if name.startswith("SNOWREDIS_") and name not in before]:
        del os.environ[name]
    os.environ.update(before)


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
def pool_name() -> str:
    """A pool that no other test uses."""
    return f"p-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def step_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that is preloaded into a redis-server whose clock a test steps."""
    library, reason = shim.build(tmp_path_factory.mktemp("shim"))
    return library or pytest.skip(reason)


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
def pgbouncer_of(postgresql_server: databases.PostgreSQL) -> Iterator[Path]:
    """Directory of a PgBouncer in transaction mode before the PostgreSQL of the tests, for pooled()."""
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(pgbouncer(postgresql_server))
        except databases.MissingDatabase as error:
            pytest.skip(str(error))
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
