"""Crash records in a directory of the test, and processes that leave them."""

import contextlib
import mmap
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.crash.files import VARIABLE, FileName
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the crash records, also of programs that the test starts."""
    path = tmp_path / "records"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


ONE = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=10)
# what a killed process had reserved, the next one of its worker id waits for
TTL_S = 3.0


@pytest.fixture
def pool(server: RedisServer) -> str:
    """Return a pool with one worker id."""
    return new_pool(server.url, layout=ONE, ttl=TTL_S)


def connect(url: str, pool: str) -> snowredis.SnowflakeGenerator:
    return snowredis.connect(url, pool=pool, layout=ONE, ttl=TTL_S, claim_timeout=0)


def config_of(pool: str, ttl_s: float = TTL_S) -> PoolConfig:
    return PoolConfig(name=pool, layout=ONE, ttl_ms=int(ttl_s * 1000))


class Child:
    """A forked process that does what it is told, until it is killed.

    Attributes:
        numbers: 64-bit numbers that both see.
    """

    def __init__(self, work: Callable[[memoryview], object]) -> None:
        self.numbers = memoryview(mmap.mmap(-1, 4096)).cast("q")
        self.pid = os.fork()
        if not self.pid:
            try:
                # another test may have set a handler
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                work(self.numbers)
            except BaseException:  # noqa: BLE001 - shown, and the child ends in any case
                traceback.print_exc()
            finally:
                os._exit(0)

    def wait_for(self, index: int, at_least: int) -> None:
        eventually(lambda: self.numbers[index] >= at_least, "work of the child", 20)

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def child(work: Callable[[memoryview], object]) -> Iterator[Child]:
    running = Child(work)
    try:
        yield running
    finally:
        with contextlib.suppress(ChildProcessError):
            running.kill()


class Owned:
    """The owner of a page of the test."""

    is_writer = True

    def touch(self) -> None: ...
    def close(self, *, records_lease: bool) -> None: ...


def name_of(path: Path) -> FileName:
    """Return what the name of a file of a crash record says."""
    name = FileName.parse(path.name, path.parent.name.partition(".")[2])
    assert name is not None
    return name


def files_in(records: Path) -> list[Path]:
    """Return the files of crash records."""
    return sorted(path for path in records.rglob("*") if path.is_file())
