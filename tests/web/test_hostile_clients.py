"""Clients that send slowly, do not read, or send too much, on one service: they are closed, and others are served."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import TOKEN, Serve, Served

pytest.importorskip("uvicorn")

HEAD = b"GET /id HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
FORM = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
MOST = 50


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as raw:
        yield raw


def rest_of(raw: socket.socket) -> bytes:
    """Return all bytes until the service closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := raw.recv(65536):
            found += part
    return found


def test_no_client_keeps_others_out(server: RedisServer, pool_name: str, serve: Serve, tmp_path: Path) -> None:
    new_pool(server.url, pool_name)
    (tmp_path / "token").write_text(TOKEN)
    served = serve(
        *("--pool", pool_name, "--token-file", str(tmp_path / "token")),
        url=server.url,
        SNOWREDIS_SERVE_REQUEST_TIMEOUT_S="1",
        SNOWREDIS_SERVE_RESPONSE_TIMEOUT_S="1",
        SNOWREDIS_SERVE_MAX_CONNECTIONS=str(MOST),
        SNOWREDIS_SERVE_MAX_AT_ONCE="10",
    )

    def is_well() -> bool:
        return bool(served.ask("/healthz")[0] == served.ask("/id", Authorization=f"Bearer {TOKEN}")[0] == 200)

    with contextlib.ExitStack() as stack:
        # many times more than there may be; the last of them end by the time limit
        half = [stack.enter_context(connected(served)) for _ in range(4 * MOST)]
        for raw in half:
            with contextlib.suppress(OSError):
                raw.sendall(HEAD)
        assert is_well()
        assert b"HTTP/1.1 408" in rest_of(half[-1])
        assert rest_of(half[0]) == b""

    with contextlib.ExitStack() as stack:
        # requests without their bodies are not in progress: they are closed, and use up no limit of requests
        forms = [stack.enter_context(connected(served)) for _ in range(20)]
        for raw in forms:
            raw.sendall(FORM % 100 + b"token=")
        assert is_well()
        assert rest_of(forms[0]).startswith(b"HTTP/1.1 408")

    with connected(served) as raw:
        raw.sendall(HEAD + b"X: " + b"x" * 40_000)
        assert rest_of(raw).startswith(b"HTTP/1.1 431")

    with connected(served) as raw:
        # requests in pieces that do not end where they do, empty lines between them, one with a body
        several = HEAD + b"\r\n\r\n\r\n" + FORM % 12 + b"token=wrong!" + HEAD + b"Connection: close\r\n\r\n"
        for start in range(0, len(several), 7):
            raw.sendall(several[start : start + 7])
        assert re.findall(rb"HTTP/1.1 (\d+)", rest_of(raw)) == [b"200", b"401", b"200"]

    with connected(served) as raw:
        # a client may close its half and still wait for its responses
        raw.sendall((HEAD + b"\r\n") * 3)
        raw.shutdown(socket.SHUT_WR)
        assert rest_of(raw).count(b"HTTP/1.1 200") == 3

    with connected(served) as raw:
        with contextlib.suppress(OSError):
            raw.sendall((HEAD + b"\r\n") * 1000)
        # it is not read to the end
        assert rest_of(raw).count(b"HTTP/1.1 200") < 1000
    assert is_well()

    # readers that do not read: the responses wait in the service, until it closes them
    unread = HEAD.replace(b"/id", b"/ids?count=10000") + b"\r\n"
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(connected(served)) for _ in range(5)]
        for raw in readers:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.sendall(unread * 30)

        open_ones = set(readers)

        def closed() -> bool:
            assert is_well()
            # an error, which is there once: the connection has been reset
            for raw in list(open_ones):
                if raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    open_ones.discard(raw)
            return not open_ones

        eventually(closed, "the end of readers that do not read", 30)
    assert is_well()
    assert "Traceback" not in served.log.read_text()
