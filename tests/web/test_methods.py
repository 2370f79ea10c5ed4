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
PAGES = ("/", "/static/style.css", "/nothing")


def paths_of(served: Served) -> list[str]:
    described = json.loads(served.ask("/openapi.json")[2])["paths"]
    filled = (path.replace("{text}", "249734652741287936") for path in described)
    return [*(f"{path}?count=2" if path == "/ids" else path for path in filled), *PAGES]


def test_every_path_ends_its_response_to_every_method(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    for path in paths_of(served):
        # one connection for all, as a proxy uses it for many clients
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)) as connection:
            for method in METHODS:
                connection.request(method, path)
                connection.getresponse().read()
                connection.request("GET", "/id")
                response = connection.getresponse()
                assert (response.status, len(json.loads(response.read()))) == (200, 1), (method, path)
