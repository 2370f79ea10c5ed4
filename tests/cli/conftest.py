"""The command run in this process or in another, on the tests' redis-server."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from snowredis.cli import build_parser, main
from tests.support.servers import RedisServer

# it is the same for all command lines with the same command
build_parser_once = functools.cache(build_parser)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def server_url(server: RedisServer) -> str:
    return server.url


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def nothing_left(client: redis.Redis, pool_name: str) -> Iterator[None]:
    """The server is shared, and other tests count its pools."""
    yield
    for key in client.scan_iter(f"snowredis:{{{pool_name}*", count=1000):
        client.delete(key)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the user's own settings from the environment."""
    for name in list(os.environ):
        if name.startswith("SNOWREDIS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command in this process, which must end with *code*, if given; any Redis it asks for is missing."""
    monkeypatch.setattr("snowredis.cli.build_parser", build_parser_once)

    def run(*argv: str, code: int | None = None) -> Result:
        result = Result(main(argv), *capsys.readouterr())
        assert code in (None, result.code), result
        return result

    return run


@pytest.fixture
def cli(offline: Cli, server_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command in this process, on the tests' server."""
    monkeypatch.setenv("SNOWREDIS_URL", server_url)
    return offline


@pytest.fixture
def command() -> Callable[..., list[str]]:
    """The command line of the command in a process of its own."""
    return lambda *argv: [sys.executable, "-m", "snowredis", *argv]


@pytest.fixture
def process_environment(server_url: str) -> dict[str, str]:
    packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return os.environ | {"PYTHONPATH": packages, "SNOWREDIS_URL": server_url, "TERM": "xterm-256color"}


@pytest.fixture
def short_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose path leaves room for that of a socket in it."""
    return tmp_path_factory.mktemp("d")
