"""The service behind the real nginx with the lines of the page."""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import TOKEN, Serve, Served

pytest.importorskip("uvicorn")
# the proxy's own address is trusted, and is not it
CLIENT = ("127.0.0.2", 0)
BEARER = {"Authorization": f"Bearer {TOKEN}", "Host": "ids.internal"}


@pytest.fixture
def served(server: RedisServer, pool_name: str, serve: Serve, tmp_path: Path) -> Served:
    new_pool(server.url, pool_name)
    (tmp_path / "token").write_text(TOKEN)
    options = ("--pool", pool_name, "--token-file", str(tmp_path / "token"))
    return serve(*options, "--trust-proxy", "127.0.0.1", url=server.url, SNOWREDIS_SERVE_HOSTS="ids.internal")


def ask(port: int, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, str | None, bytes]:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=CLIENT)
    ) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers["location"], response.read()


def test_all_paths_work_below_its_prefix_and_none_leads_out_of_it(served: Served, nginx: Callable[..., int]) -> None:
    port = nginx(served.port)
    for path in ("", "id", "ids?count=3", "workers?limit=3", "events", "static/page.js", "readyz", "metrics"):
        assert ask(port, f"/ids/{path}", BEARER)[0] == 200, path
    status, location, _ = ask(port, "/ids", BEARER)
    assert (status, (location or "").endswith("/ids/")) == (301, True)
    for path in ("workers/", "id/", "static/", "/workers", "static//page.js", "workers/%2e%2e/id", "\\evil.example"):
        status, location, _ = ask(port, f"/ids/{path}", BEARER)
        assert (status >= 400 or location is None, location) == (True, None), path


def test_a_client_that_names_another_address_is_limited_by_its_own(served: Served, nginx: Callable[..., int]) -> None:
    port = nginx(served.port)

    def guess(number: int) -> int:
        spoofed = {
            "Authorization": f"Bearer {number:020}",
            "Host": "ids.internal",
            "X-Forwarded-For": f"10.0.0.{number}",
        }
        return ask(port, "/ids/id", spoofed)[0]

    began_s = time.monotonic()
    statuses = [guess(number) for number in range(200)]
    # as many as the limit allows in that time, though each of them named another address
    assert statuses.count(401) <= 11 + 10 * (time.monotonic() - began_s)
    assert set(statuses) <= {401, 429}


def test_a_slow_client_is_closed_and_a_large_body_is_refused(served: Served, nginx: Callable[..., int]) -> None:
    port = nginx(served.port)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET /ids/id HTTP/1.1\r\nHost: ids.internal\r\nX-Half: ")
        assert slow.recv(1000) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as large:
        large.sendall(b"GET /ids/id HTTP/1.1\r\nHost: ids.internal\r\nContent-Length: 5000\r\n\r\n")
        assert large.recv(1000).startswith(b"HTTP/1.1 413")
