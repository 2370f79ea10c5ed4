"""The service as a process of its own: uvicorn by the command, gunicorn by its import string, the client, the end."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.web.client import Client, ServiceError
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import ROOT, TOKEN, Serve, two_gunicorn_workers

pytest.importorskip("uvicorn")


def test_the_command_serves_ids_and_gives_its_worker_id_back(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    status, headers, body = served.ask("/ids?count=3", Accept="application/octet-stream")
    assert status == 200
    ids = struct.unpack(">3q", body)
    assert ids == tuple(sorted(set(ids)))
    assert "server" not in headers
    assert [one.label for one in snowredis.WorkerPool(server.url, pool_name).workers()] == ["snowredis serve"]
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
    assert f"pools there: {pool_name})" in line
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


def test_a_new_pool_says_for_how_long_its_first_worker_waits(server: RedisServer, pool_name: str, serve: Serve) -> None:
    served = serve("--pool", pool_name, "--create", url=server.url, ready="/healthz")

    def waits() -> Any:
        return served.ask("/readyz")[0] == 503 and served.ask("/id")[1]["retry-after"]

    # ttl + max_clock_lead + redis_skew, less what has passed
    assert 25 <= int(eventually(waits, "the wait", 10)) <= 35
    status, _, body = served.ask("/id")
    assert (status, json.loads(body)["error"]) == (503, "FloorWait")


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
        elsewhere = serve("--host", "192.0.2.1", "--insecure", "--pool", pool_name, url=server.url, ready="")
        for one, reason in ((busy, "already in use"), (elsewhere, "Cannot assign requested address")):
            assert one.process.wait(30) == 3
            [line] = one.log.read_text().splitlines()
            assert reason in line


def test_an_open_dashboard_does_not_hold_up_the_end(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", "/live")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.readline().startswith(b"event: all")
    served.stop()
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []


def test_redis_may_go_and_come_back(own_server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(own_server.url, pool_name, ttl=1.5)
    served = serve("--pool", pool_name, url=own_server.url)
    own_server.kill()
    served.wait_for("/readyz", 503)
    # in the outage lane
    assert served.ask("/id")[0] == 200
    assert served.ask("/workers")[0] == 503
    assert served.ask("/healthz")[0] == 200
    own_server.start()
    served.wait_for("/readyz")
    assert served.ask("/id")[0] == 200


def test_gunicorn_serves_it_by_its_import_string(server: RedisServer, pool_name: str, serve: Serve) -> None:
    pytest.importorskip("gunicorn")
    pytest.importorskip("uvicorn_worker")
    new_pool(server.url, pool_name)
    served = serve(
        *two_gunicorn_workers("uvicorn_worker.UvicornWorker"),
        url=server.url,
        command=[],
        SNOWREDIS_SERVE_POOLS=pool_name,
    )
    pool = snowredis.WorkerPool(server.url, pool_name)
    eventually(lambda: len(pool.workers()) >= 2, "two workers", 30)
    ids = [served.ask("/ids?count=100", Accept="text/plain")[2].split() for _ in range(20)]
    assert len({an_id for batch in ids for an_id in batch}) == 2000
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", "/live")
    assert connection.getresponse().readline().startswith(b"event: all")
    served.stop()
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []


def test_a_head_without_an_end_is_cut_off(server: RedisServer, pool_name: str, serve: Serve) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as raw:
        raw.sendall(b"GET /id HTTP/1.1\r\nHost: localhost\r\n")
        answer = b""
        try:
            for _ in range(200):
                raw.sendall(b"X-Filler: " + b"y" * 4000 + b"\r\n")
            answer = raw.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            answer = b"HTTP/1.1 431"
        assert answer.startswith(b"HTTP/1.1 431")
    assert served.ask("/id")[0] == 200


# --- the client ------------------------------------------------------------------------------------


def test_the_client_hands_out_ids_that_it_fetched_in_batches(
    server: RedisServer, pool_name: str, serve: Serve, tmp_path: Path
) -> None:
    new_pool(server.url, pool_name)
    (tmp_path / "token").write_text(TOKEN + "\n")
    served = serve("--pool", pool_name, "--token-file", str(tmp_path / "token"), url=server.url)
    with Client(served.url, pool=pool_name, token=TOKEN, batch=7) as client:
        ids: list[int] = []

        def take() -> None:
            mine = [client.next_id() for _ in range(50)]
            assert mine == sorted(mine)
            ids.extend(mine)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids += client.next_ids(10_000)
        assert len(set(ids)) == len(ids) == 10_200
        with pytest.raises(ServiceError) as refused:
            client.next_ids(10_001)
        assert (refused.value.status, refused.value.error) == (400, "BadCount")
        # a child does not hand out what its parent fetched
        while not client._ids:
            client.next_id()
        left = client._ids[:]
        child = os.fork()
        if child == 0:
            os._exit(0 if client.next_id() not in {*left, *ids} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.next_id() == left[-1]
    with pytest.raises(ServiceError) as refused:
        Client(served.url, token="another-token-of-length").next_id()
    assert refused.value.status == 401


def test_the_client_goes_on_with_a_service_that_was_restarted_and_says_when_there_is_none(
    server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url)
    client = Client(served.url, batch=1)
    client.next_id()
    served.stop()
    with pytest.raises(ServiceError) as refused:
        Client(served.url, max_wait=0).next_id()
    assert (refused.value.status, refused.value.error) == (0, "Unreachable")
    serve(
        "--pool",
        pool_name,
        url=server.url,
        command=["-m", "snowredis", "serve", "--port", str(served.port)],
        ready="",
    )
    # it tries again until the service is there
    client = Client(served.url, batch=1, max_wait=60)
    assert client.next_id() < client.next_id()


def test_the_client_waits_as_long_as_the_service_says_unless_that_is_too_long() -> None:
    """The service that it talks to has no ids, three times for a second, then for 35 s."""
    asked: list[str] = []
    waits = iter([1, 1, 0, 35])

    class Refusing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            wait_s = next(waits)
            body = b'{"error": "FloorWait"}' if wait_s else (7).to_bytes(8, "big")
            self.send_response(503 if wait_s else 200)
            self.send_header("content-type", "application/octet-stream")
            self.send_header("content-length", str(len(body)))
            if wait_s:
                self.send_header("retry-after", str(wait_s))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{refusing.server_port}", batch=1, max_wait=20) as client:
            assert client.next_id() == 7
            assert len(asked) == 3
            with pytest.raises(ServiceError) as refused:
                client.next_id()
            assert (refused.value.error, refused.value.retry_after_s, len(asked)) == ("FloorWait", 35, 4)
        refusing.shutdown()


def test_threads_that_wait_for_one_client_wait_no_longer_than_one() -> None:
    """The service that they talk to never has ids."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(503)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{refusing.server_port}", max_wait=0.5) as client:

            def wait(_: int) -> float:
                began_s = time.monotonic()
                with pytest.raises(ServiceError):
                    client.next_id()
                return time.monotonic() - began_s

            with ThreadPoolExecutor(10) as threads:
                waits = list(threads.map(wait, range(10)))
        refusing.shutdown()
    # one after the other, ten times 0.5 s
    assert max(waits) < 1.5


@pytest.mark.parametrize("url", ["ftp://h", "127.0.0.1:8600", "http://", "http://h/?x=1"])
def test_the_client_wants_an_address(url: str) -> None:
    with pytest.raises(snowredis.ConfigError):
        Client(url)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_the_bench_prints_a_line_for_each_kind_of_request(tmp_path: Path) -> None:
    bench = [sys.executable, str(ROOT / "scripts/bench_serve.py"), "--seconds", "1", "--rounds", "1"]
    done = subprocess.run(bench, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(line.startswith(("hello", "/id", "1000")) for line in done.stdout.splitlines()) == 8
    assert "errors" not in done.stdout
