"""The service as a process of its own: the command, a client, the end."""

import http.client
import json
import signal
import socket
import struct
import time
from typing import Any

import httpx
import pytest

import snowredis
from tests.support.pages import blocks_of
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import SHARED, Serve, Served

pytest.importorskip("uvicorn")


def test_the_command_serves_ids_and_releases_its_worker_id_even_if_a_connection_is_idle(
    server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    status, headers, body = served.ask("/ids?count=3", Accept="application/octet-stream")
    assert status == 200
    ids = struct.unpack(">3q", body)
    assert ids == tuple(sorted(set(ids)))
    assert "server" not in headers
    assert [one.label for one in snowredis.WorkerPool(server.url, pool_name).workers()] == ["snowredis serve"]
    idle = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    idle.request("GET", "/id")
    assert idle.getresponse().read()
    assert served.stop() in (0, -15)
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []


def test_a_pool_that_does_not_exist_is_not_made_by_a_typing_error(
    own_server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(own_server.url, pool_name)
    wrong = serve("--pool", pool_name + "x", url=own_server.url, ready="")
    assert wrong.process.wait(30) == 5
    [line] = wrong.log.read_text().splitlines()
    assert f"there is no pool '{pool_name}x'" in line
    assert f"Redis at {own_server.url}" in line
    assert snowredis.WorkerPool(own_server.url, pool_name).pools() == [pool_name]
    # Redis is away at the start: alive, not ready, and it says why
    own_server.kill()
    served = serve("--pool", pool_name, "--pool", "later", url=own_server.url, ready="/healthz")
    status, headers, body = served.ask("/readyz")
    assert (status, headers["retry-after"], json.loads(body)["error"]) == (503, "3", "StoreUnavailable")
    own_server.start()

    def reason() -> Any:
        return json.loads(served.ask("/readyz?pool=later")[2])["error"] == "PoolNotFound"

    eventually(reason, "the missing pool", 30)
    # a person creates it; the other one was lost with the Redis
    new_pool(own_server.url, "later")
    served.wait_for("/readyz?pool=later")
    status, _, body = served.ask("/id?pool=later")
    assert status == 200, body
    assert served.ask("/readyz")[0] == 503


def test_an_address_that_cannot_be_used_is_one_line(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = serve(
            *("--pool", pool_name),
            url=server.url,
            command=["-m", "snowredis", "serve", "--port", str(taken.getsockname()[1])],
            ready="",
        )
        elsewhere = serve(
            *("--host", "192.0.2.1", "--pool", pool_name), url=server.url, ready="", SNOWREDIS_SERVE_INSECURE="1"
        )
        for one, reason in ((busy, "already in use"), (elsewhere, "cannot assign requested address")):
            assert one.process.wait(30) == 3
            [line] = [line for line in one.log.read_text().splitlines() if "ERROR" in line]
            assert reason in line.lower()


def test_a_terminal_that_closes_ends_it_as_sigterm_does_unless_nohup_asked_for_more(
    server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    served.process.send_signal(signal.SIGHUP)
    assert served.process.wait(20) in (0, -signal.SIGTERM)
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []
    ignoring = (
        "import runpy, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "runpy.run_module('snowredis', None, '__main__')"
    )
    served = serve("--pool", pool_name, url=server.url, command=["-c", ignoring, "serve", "--port", "{port}"])
    served.process.send_signal(signal.SIGHUP)
    assert served.ask("/id")[0] == 200


def test_redis_may_go_and_come_back(own_server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(own_server.url, pool_name, ttl=1.5)
    served = serve("--pool", pool_name, url=own_server.url)
    own_server.kill()
    eventually(lambda: served.ask("/workers")[0] == 503, "an outage that is seen")

    def is_ready_for(seconds: float) -> None:
        ended_s = time.monotonic() + seconds
        while time.monotonic() < ended_s:
            assert (served.ask("/readyz")[0], served.ask("/id")[0]) == (200, 200)
            time.sleep(0.1)

    # longer than the ordinary reservation: in the outage lane it makes ids
    is_ready_for(3)
    assert served.ask("/workers")[0] == 503
    assert served.ask("/healthz")[0] == 200
    # empty: no probe ends the process
    own_server.start()
    is_ready_for(2)


def test_the_client_of_the_page_yields_ids_in_batches_and_tries_again_when_the_service_says_so(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = [block.text for block in blocks_of("docs/how-to/service.md") if "import httpx" in block.text]
    names: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:8600", served.url).replace('"orders"', f'"{SHARED[0]}"'), names)
    first, second = map(int, capsys.readouterr().out.split())
    assert first < second
    statuses = [503, 429, 200]

    def respond(request: httpx.Request) -> httpx.Response:
        status = statuses.pop(0)
        count = int(request.url.params["count"])
        body = struct.pack(f">{count}q", *range(1, count + 1)) if status == 200 else b""
        return httpx.Response(status, content=body, headers={"Retry-After": "0"})

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(respond)) as client:
        ids = names["ids_of"](client, "orders", 3)
        assert [next(ids) for _ in range(3)] == [1, 2, 3]
        assert statuses == []
