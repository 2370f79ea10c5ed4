"""Each path with each method: the response ends, and the next request of the connection is served."""

from __future__ import annotations

import contextlib
import http.client
import json

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import Serve, Served

pytest.importorskip("uvicorn")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
PAGES = ("/", "/login", "/logout", "/static/page.css", "/nothing")


def paths_of(served: Served) -> list[str]:
    described = json.loads(served.ask("/openapi.json")[2])["paths"]
    filled = (path.replace("{text}", "249734652741287936") for path in described)
    return [*(f"{path}?count=2" if path == "/ids" else path for path in filled), *PAGES]


def test_every_path_ends_its_response_to_every_method(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url, SNOWREDIS_SERVE_MAX_VIEWERS="1")
    for path in paths_of(served):
        # one connection for all, as a proxy uses it for many clients
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)) as connection:
            for method in METHODS:
                # a stream has no end of its own
                if (path, method) == ("/live", "GET"):
                    continue
                connection.request(method, path)
                connection.getresponse().read()
                connection.request("GET", "/id")
                response = connection.getresponse()
                assert (response.status, len(json.loads(response.read()))) == (200, 1), (method, path)


def test_a_stream_answers_head_with_its_headers_and_no_place_of_a_viewer(
    server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url, SNOWREDIS_SERVE_MAX_VIEWERS="1")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)) as viewer:
        for _ in range(3):
            status, headers, body = served.ask("/live", "HEAD")
            assert (status, headers.get_content_type(), body) == (200, "text/event-stream", b"")
            assert "content-length" not in headers
        viewer.request("GET", "/live")
        response = viewer.getresponse()
        assert (response.status, response.readline()) == (200, b"event: all\n")
        # the place is taken, for HEAD too
        assert served.ask("/live", "HEAD")[0] == 503
