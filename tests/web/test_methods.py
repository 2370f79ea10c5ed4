"""Each path with each method, and requests of broken shapes: the next request is served, and the log does not grow."""

import contextlib
import http.client
import json
import socket

import pytest

from tests.web.conftest import Served

pytest.importorskip("uvicorn")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
PAGES = ("/", "/static/style.css", "/nothing")


def paths_of(served: Served) -> list[str]:
    described = json.loads(served.ask("/openapi.json")[2])["paths"]
    filled = (path.replace("{text}", "249734652741287936") for path in described)
    return [*(f"{path}?count=2" if path == "/ids" else path for path in filled), *PAGES]


def test_every_path_ends_its_response_to_every_method(served: Served) -> None:
    for path in paths_of(served):
        # one connection for all, as a proxy uses it for many clients
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)) as connection:
            for method in METHODS:
                connection.request(method, path)
                refused = connection.getresponse()
                refused.read()
                assert method in ("GET", "HEAD") or refused.status == (404 if path == "/nothing" else 405)
                # a length would have to be that of GET
                assert method != "HEAD" or refused.getheader("Content-Length") != "0"
                connection.request("GET", "/id")
                response = connection.getresponse()
                assert (response.status, len(json.loads(response.read()))) == (200, 1), (method, path)


BROKEN = [
    b"\x00\xff\x16\x03\r\n\r\n",
    b"GET  /id HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /id HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET /id HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /%00%ff HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    b"POST /id HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /id HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET /id HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic \xff\xfe===\r\nUpgrade: websocket\r\n\r\n",
]


def test_requests_of_broken_shapes_break_nothing_and_fill_no_log(served: Served) -> None:
    size = served.log.stat().st_size
    for request in BROKEN * 5:
        with socket.create_connection(("127.0.0.1", served.port), timeout=0.1) as raw, contextlib.suppress(OSError):
            raw.sendall(request)
            assert b" 500 " not in raw.recv(65536)
    assert served.ask("/id?pool=shared-0")[0] == 200
    assert served.log.read_text()[size:].count("\n") < 20
