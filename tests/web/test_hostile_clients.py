"""Requests of every broken shape: uvicorn alone reads HTTP, the service goes on, and its log does not grow."""

from __future__ import annotations

import itertools
import random
import re
import socket

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import Serve, Served

pytest.importorskip("uvicorn")

LINES = [
    b"GET /id HTTP/1.1",
    b"GET /ids?count=2 HTTP/1.1",
    b"HEAD /id HTTP/1.1",
    b"GET  /id HTTP/1.1",
    b"GET /id",
    b"\x00\xff\x16\x03",
]
LINES += [b"POST /id HTTP/1.1", b"GET http://evil.example/id HTTP/1.1", b"GET /%00%ff HTTP/1.1", b"GET //id HTTP/1.0"]
HOSTS = [b"Host: localhost", b"", b"Host: localhost\r\nHost: evil.example", b"Host : localhost", b" Host: localhost"]
BODIES = [
    b"",
    b"Content-Length: 5\r\nContent-Length: 0",
    b"Content-Length: +5",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Expect: 100-continue",
    b"Authorization: Basic \xff\xfe===",
    b"Accept: " + b"a/b;q=0.1," * 300,
    b"X: " + b"y" * 70_000,
]
ENDS = [
    b"\r\n\r\n",
    b"\n\n",
    b"\r\n\r\n0\r\n\r\nGET /ids?count=9999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\r\n\r\nffffffffffffffffff\r\n",
    b"",
]


def exchange(served: Served, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=0.3) as raw:
        found = b""
        try:
            raw.sendall(request)
            while part := raw.recv(65536):
                found += part
        except OSError:
            pass
        return found


def test_no_shape_of_a_request_breaks_it_or_is_taken_for_two(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    size = served.log.stat().st_size
    shapes = list(itertools.product(LINES, HOSTS, BODIES, ENDS))
    # each of them with: for shape in shapes
    for line, host, body, end in random.Random(1).sample(shapes, 250):
        reply = exchange(served, b"\r\n".join(filter(None, (line, host, body))) + end)
        statuses = re.findall(rb"HTTP/1\.1 (\d{3})", reply)
        assert b" 500 " not in reply
        # what follows a body is a request of its own only where that body has ended
        if b"Content-Length" in body and b"chunked" in body:
            assert len(statuses) <= 1, (line, body, reply)
    assert served.process.poll() is None
    assert served.ask("/id")[0] == 200
    assert served.log.read_text()[size:].count("\n") < 20
