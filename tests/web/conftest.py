"""The service in this process, on a Redis in it or on a real one; and as a process of its own."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from starlette.testclient import TestClient

from snowredis.embedded import install_info
from snowredis.web.service import Service, create_app
from tests.support.pages import blocks_of
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.programs import in_background
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SHARED = [f"shared-{number}" for number in range(6)]
TOKEN = "correct-horse-battery-staple"


def app_of(*, pools: Sequence[str] = ("test",), **options: Any) -> Service:
    """Return an application on new pools, in a Redis of this process."""
    install_info()
    redis = fakeredis.FakeRedis()
    for pool in pools:
        new_pool(redis, pool)
    return create_app(redis, pools=pools, **options)


def client_of(app: Service, host: str = "127.0.0.1", **options: Any) -> TestClient:
    """Return a client that connects over loopback."""
    return TestClient(app, base_url=f"http://{host}:8600", **options)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SNOWREDIS_") and name not in ("SNOWREDIS_URL", "SNOWREDIS_POOL"):
            monkeypatch.delenv(name)
    # stopping a service takes no time unless the drain is the subject
    monkeypatch.setenv("SNOWREDIS_SERVE_DRAIN_S", "0")


@pytest.fixture
def each_request_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request get what another one read a moment ago."""
    monkeypatch.setattr("snowredis.web.served.FRESH_S", 0.0)


@pytest.fixture
def client() -> Iterator[TestClient]:
    """Yield a client of a service with two pools and no token."""
    with client_of(app_of(pools=["a", "b"])) as client:
        yield client


class Served:
    """A service that runs as a process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def wait_for(self, path: str, status: int = 200) -> None:
        def replies() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return bool(self.ask(path)[0] == status)

        eventually(replies, f"{status} of {path}", 30, ignored=(OSError,))

    def stop(self) -> int:
        """Stop it with SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


Serve = Callable[..., Served]


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Serve]:
    """Yield a function that starts `snowredis serve`, or another command that contains {port}."""
    with contextlib.ExitStack() as stack:

        def start(
            *options: str, url: str, command: list[str] | None = None, ready: str = "/readyz", **environment: str
        ) -> Served:
            port = free_port()
            log = directory / f"serve{port}.log"
            program = ["-m", "snowredis", "serve", "--port", "{port}"] if command is None else command
            words = [sys.executable, *(part.format(port=port) for part in (*program, *options))]
            packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
            variables = os.environ | {"PYTHONPATH": packages, "SNOWREDIS_URL": url} | environment
            imported = ("uvicorn", "snowredis.web.service")
            process = stack.enter_context(in_background(words, log, imported=imported, env=variables))
            served = Served(process, port, log)
            if ready:
                served.wait_for(ready)
            return served

        yield start


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def served(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a service of the pools of SHARED for the tests of a file that leave it as it is."""
    for pool in SHARED:
        new_pool(server.url, pool)
    pools = [part for pool in SHARED for part in ("--pool", pool)]
    with serving(tmp_path_factory.mktemp("served")) as start:
        yield start(*pools, url=server.url)


NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Yield a function that starts nginx with the lines of the page before services, and returns its port."""
    if NGINX is None:
        pytest.skip("no nginx on PATH")
    program = NGINX
    [lines_of_page] = [block.text for block in blocks_of("docs/how-to/service.md") if "proxy_pass" in block.text]
    stack = contextlib.ExitStack()

    def start(*ports: int) -> int:
        port = free_port()
        lines = lines_of_page.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
        lines = (
            re.sub(r".*ssl_certificate.*\n", "", lines)
            .replace("timeout 10s", "timeout 1s")
            .replace("1000r/s", "100000r/s")
        )
        lines = lines.replace(
            "server 127.0.0.1:8600 ", "".join(f"server 127.0.0.1:{each} max_fails=0; " for each in ports) + "#"
        )
        temporary = "".join(f"{name}_temp_path {tmp_path / name};" for name in _FOLDERS)
        config = tmp_path / "nginx.conf"
        config.write_text(
            f"daemon off; pid {tmp_path / 'pid'}; error_log {tmp_path / 'err'}; events {{}}\n"
            f"http {{ access_log off; {temporary}\n{lines} }}"
        )
        command: list[str | Path] = [program, "-c", config, "-e", tmp_path / "err", "-p", tmp_path]
        stack.enter_context(in_background(command, tmp_path / "nginx.log"))

        def accepts() -> bool:
            with socket.create_connection(("127.0.0.1", port)):
                return True

        eventually(accepts, "nginx", ignored=(OSError,))
        return port

    with stack:
        yield start
