"""A request for an id that comes again on its connection: the same response with another id, and the same checks."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import SHARED, TOKEN, Serve, Served

pytest.importorskip("uvicorn")


class Client:
    """One connection."""

    def __init__(self, served: Served) -> None:
        self._socket = socket.create_connection(("127.0.0.1", served.port), timeout=20)
        self._file = self._socket.makefile("rb")

    def ask(self, *headers: str, path: str = "/id", body: bool = True) -> tuple[int, list[bytes], bytes]:
        """Send a request whose bytes depend on the arguments alone; return status, headers and perhaps the body."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        status = int(self._file.readline().split()[1])
        found = [line.rstrip() for line in iter(self._file.readline, b"\r\n")]
        if not body:
            return status, found, b""
        [length] = [int(line.split()[1]) for line in found if line.startswith(b"content-length:")]
        return status, found, self._file.read(length)

    def is_at_end(self) -> bool:
        """Wait until the service closes the connection."""
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextlib.contextmanager
def connected(served: Served) -> Iterator[Client]:
    with contextlib.closing(Client(served)) as client:
        yield client


def served_ids(client: Client, pool: str) -> float:
    """Return how many ids of *pool* the service has given: of a moment ago."""
    metrics = client.ask(path="/metrics")[2].decode()
    return float(metrics.partition(f'snowredis_served_ids_total{{pool="{pool}"}} ')[2].split()[0])


@pytest.mark.parametrize(
    ("accept", "pool"),
    list(zip(["application/json", "text/plain", "application/octet-stream"], SHARED[1:4], strict=True)),
)
def test_it_gets_the_same_headers_and_another_id(served: Served, accept: str, pool: str) -> None:
    with connected(served) as client:
        answers = [client.ask(f"Accept: {accept}", path=f"/id?pool={pool}") for _ in range(5)]
        # others in between do not matter
        assert client.ask(path="/pools")[0] == 200
        answers.append(client.ask(f"Accept: {accept}", path=f"/id?pool={pool}"))
        eventually(lambda: served_ids(client, pool) == 6)
    assert {status for status, _, _ in answers} == {200}
    assert len({tuple(sorted(headers)) for _, headers, _ in answers}) == 1
    bodies = [body for _, _, body in answers]
    if accept == "application/octet-stream":
        ids = [struct.unpack(">q", body)[0] for body in bodies]
    else:
        start, end = (b"", b"\n") if accept == "text/plain" else (b'{"id":"', b'"}')
        ids = [int(body.removeprefix(start).removesuffix(end)) for body in bodies]
    assert all(earlier < later for earlier, later in itertools.pairwise(ids))


def test_each_connection_repeats_its_own_request(served: Served) -> None:
    with connected(served) as one, connected(served) as other:
        for _ in range(3):
            one.ask(path=f"/id?pool={SHARED[4]}")
            other.ask(path=f"/id?pool={SHARED[5]}")
            other.ask(path=f"/id?pool={SHARED[4]}")
        eventually(lambda: [served_ids(one, pool) for pool in SHARED[4:]] == [6, 3])


def test_a_header_that_nothing_reads_may_differ(served: Served) -> None:
    with connected(served) as client:
        first = client.ask("Traceparent: 00-1")
        answers = [client.ask(f"Traceparent: 00-{number}", "X-Request-Id: caf\xe9") for number in range(3)]
        assert {(status, tuple(sorted(headers))) for status, headers, _ in [first, *answers]} == {
            (200, tuple(sorted(first[1])))
        }
        assert len({body for _, _, body in [first, *answers]}) == 4


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ("Host: evil.example", 403),
        ("Accept: text/html", 406),
        ("Sec-Fetch-Site: cross-site", 403),
        ("Content-Length: 5000", 413),
        ("Transfer-Encoding: chunked", 413),
        ("Not a header", 400),
        ("X: a\0b", 400),
    ],
)
def test_any_other_change_is_seen(served: Served, changed: str, status: int) -> None:
    with connected(served) as client:
        assert [client.ask()[0] for _ in range(3)] == [200, 200, 200]
        assert client.ask(changed, body=False)[0] == status


def test_what_follows_a_request_is_a_request_of_its_own(served: Served) -> None:
    with connected(served) as client:
        assert [client.ask()[0] for _ in range(3)] == [200, 200, 200]
        # the second one is no request
        client._socket.sendall(b"GET /id HTTP/1.1\r\nHost: localhost\r\n\r\nX-Header: 1\r\n")
        assert client._file.readline().split()[1] == b"200"
        client._socket.sendall(b"\r\n")
        assert b" 400 " in client._file.read()


def test_each_one_is_in_the_access_log(served: Served) -> None:
    before = served.log.read_text().count("GET /id ")
    with connected(served) as client:
        for _ in range(5):
            client.ask()
    assert served.log.read_text().count("GET /id ") == before + 5


def test_it_counts_for_the_rate_and_waits_for_the_pool(own_server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(own_server.url, pool_name, ttl=1.5, outage_reserve=0)
    served = serve("--pool", pool_name, url=own_server.url, SNOWREDIS_SERVE_ID_REQUESTS_PER_S="20")
    with connected(served) as client:
        statuses = [client.ask()[0] for _ in range(60)]
        assert set(statuses) == {200, 429}
        own_server.kill()
        eventually(lambda: client.ask()[0] == 503, limit_s=30)
        own_server.start()
        eventually(lambda: client.ask()[0] == 200, limit_s=30)


def test_it_keeps_its_connection_open_and_a_pause_ends_it(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url, SNOWREDIS_SERVE_KEEP_ALIVE_S="2")
    with connected(served) as active, connected(served) as idle:
        assert idle.ask()[0] == active.ask()[0] == 200
        idle._socket.settimeout(0.1)
        ended = False
        # the idle one is closed meanwhile
        while not ended:
            assert active.ask()[0] == 200
            with contextlib.suppress(TimeoutError):
                ended = idle._socket.recv(1) == b""
        assert active.ask()[0] == 200
        assert active.is_at_end()


def test_a_token_is_checked_once_and_a_session_each_time(
    server: RedisServer, pool_name: str, serve: Serve, tmp_path: Path
) -> None:
    new_pool(server.url, pool_name)
    (tmp_path / "token").write_text(TOKEN)
    served = serve("--pool", pool_name, "--token-file", str(tmp_path / "token"), url=server.url)
    with connected(served) as client:
        assert [client.ask(f"Authorization: Bearer {TOKEN}")[0] for _ in range(3)] == [200, 200, 200]
        assert client.ask()[0] == client.ask("Authorization: Bearer wrong-token-of-length")[0] == 401
        form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": served.url}
        status, headers, _ = served.ask("/login", "POST", f"token={TOKEN}".encode(), **form)
        assert status == 303
        cookie = f"Cookie: {headers['set-cookie'].partition(';')[0]}"
        assert [client.ask(cookie)[0] for _ in range(3)] == [200, 200, 200]
        assert served.ask("/logout", "POST", b"", Cookie=cookie.partition(" ")[2], Origin=served.url)[0] == 303
        eventually(lambda: client.ask(cookie)[0] == 401)
