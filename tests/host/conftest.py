"""Processes of one host with lease="host", that do what a test tells them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support.servers import RedisServer, redis_server

TTL_S = 1.5

PROGRAM = """
import json, os, sys
import snowredis
from snowredis.errors import SnowredisError
ids = snowredis.connect(**json.loads(sys.argv[1]))
for line in sys.stdin:
    try:
        print(json.dumps(eval(line)), flush=True)
    except SnowredisError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
"""


class HostProcess:
    """A process with a generator called ids, which evaluates expressions."""

    def __init__(self, settings: dict[str, Any], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, expression: str) -> Any:
        """Return the value of *expression*."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(expression, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        return json.loads(line)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Let the process end by itself; return what it wrote to stderr."""
        return self._process.communicate(timeout=20)[1]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    # a short path: sockets need one
    with tempfile.TemporaryDirectory() as directory, redis_server(Path(directory)) as running:
        yield running


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a directory on tmpfs for crash records and pages."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    directory = tempfile.mkdtemp(dir="/dev/shm")
    monkeypatch.setenv("SNOWREDIS_CRASH_RECORDS", directory)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def pool(server: RedisServer, records: str) -> snowredis.WorkerPool:
    """Return a pool whose processes need not wait."""
    create = ["pool", "create", "orders", "--url", server.url, "--ttl", str(TTL_S)]
    subprocess.run([sys.executable, "-m", "snowredis", *create], check=True, stdout=subprocess.DEVNULL)
    return snowredis.WorkerPool(server.url, "orders")


@pytest.fixture
def start(server: RedisServer, pool: snowredis.WorkerPool) -> Iterator[Callable[..., HostProcess]]:
    """Return a function that starts a process; its arguments are settings, and ``environment``."""
    started: list[HostProcess] = []
    common = {"url": server.url, "pool": "orders", "ttl": TTL_S, "lease": "host", "claim_timeout": 2}

    def start_one(environment: dict[str, str] | None = None, **settings: Any) -> HostProcess:
        started.append(HostProcess({**common, **settings}, environment or {}))
        return started[-1]

    yield start_one
    for process in started:
        process.send(signal.SIGCONT)
        process.kill()
