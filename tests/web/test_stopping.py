"""The end of a process under load: no request is lost, and no id is repeated."""

import asyncio
import json
import signal
from collections.abc import Callable

import pytest

import snowredis
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import Serve, Served
from tests.web.keepalive_load import Loaded, load


def under_load(ports: list[int], act: Callable[[Loaded], None], path: str = "/id") -> Loaded:
    async def run() -> Loaded:
        async with load(ports, path) as seen:
            await asyncio.to_thread(eventually, lambda: len(seen.ids) > 100, "ids before it")
            await asyncio.to_thread(act, seen)
            count = len(seen.ids)
            await asyncio.to_thread(eventually, lambda: len(seen.ids) > count + 100, "ids after it")
        return seen

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_a_stop_is_announced_and_loses_no_request(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    first, second = (serve("--pool", pool_name, url=server.url, SNOWREDIS_SERVE_DRAIN_S="1") for _ in range(2))

    def stop(_: Loaded) -> None:
        first.process.send_signal(signal.SIGTERM)
        # before it stops, it says so to those who look, and still serves
        first.wait_for("/readyz", 503)
        status, headers, body = first.ask("/readyz")
        assert (status, headers["connection"]) == (503, "close")
        assert json.loads(body)["error"] == "Draining"
        status, headers, _body = first.ask("/id")
        assert (status, headers["connection"]) == (200, "close")
        assert first.process.wait(20) in (0, -signal.SIGTERM)

    seen = under_load([first.port, second.port], stop, "/ids?count=3")
    assert (seen.lost, seen.repeated) == ([], 0)
    assert [one.pid for one in snowredis.WorkerPool(server.url, pool_name).workers()] == [second.process.pid]


def test_gunicorn_replaces_its_processes_and_loses_no_request_of_nginx(
    server: RedisServer, pool_name: str, serve: Serve, nginx: Callable[..., int]
) -> None:
    pytest.importorskip("gunicorn")
    pytest.importorskip("uvicorn_worker")
    new_pool(server.url, pool_name)
    served = serve(
        *("-m", "gunicorn", "-w", "2", "-k", "uvicorn_worker.UvicornWorker", "--no-control-socket"),
        *("--bind", "127.0.0.1:{port}", "snowredis.web.service:from_environment()"),
        url=server.url,
        command=[],
        SNOWREDIS_SERVE_POOLS=pool_name,
        SNOWREDIS_SERVE_DRAIN_S="1",
        SNOWREDIS_SERVE_HOSTS="ids.internal",
    )
    before = pids_of(server, pool_name, served)

    def reload(_: Loaded) -> None:
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: not before & pids_of(server, pool_name, served), "two new processes", 30)

    # a process that ends may close the second connection of a busy machine, too
    seen = under_load([nginx(*[served.port] * 3)], reload, "/ids/id")
    assert (seen.lost, seen.repeated) == ([], 0)
    served.stop()
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []


def pids_of(server: RedisServer, pool: str, served: Served) -> set[int]:
    """Return the processes that lease a worker id, when there are two of them."""

    def pids() -> set[int]:
        assert served.process.poll() is None, served.log.read_text()
        found = {one.pid for one in snowredis.WorkerPool(server.url, pool).workers()}
        return found if len(found) == 2 else set()

    found: set[int] = eventually(pids, "two processes", 30)
    return found
