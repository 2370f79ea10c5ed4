"""A host by its name: connecting takes no longer than its time limit, whatever the name server does."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from snowredis.errors import StoreUnavailable
from snowredis.process import threads
from snowredis.servers import resolving
from snowredis.servers.clients import client_of_url
from snowredis.servers.connections import time_limit
from snowredis.servers.runner import translated
from tests.support.ports import free_port
from tests.support.servers import redis_server

resolve = socket.getaddrinfo


class NameServer:
    """Stands in for the resolver of the system: knows one name, and may not reply before it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses, self.asked, self.replies = addresses, 0, threading.Event()
        self.replies.set()
        resolving._lookups.clear()
        resolving._last.clear()
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "redis.internal":
            return resolve(host, port, *args, **named)
        if named.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        self.asked += 1
        self.replies.wait(20)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return [found for address in self.addresses for found in resolve(address, port, *args, **named)]


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    with redis_server(tmp_path, "--port", str(port), "--bind", "127.0.0.1"):
        yield port


def ping(client: Any) -> Any:
    with translated("redis.internal"), time_limit(0.3):
        return client.ping()


def test_a_name_that_is_never_resolved_holds_no_call(monkeypatch: pytest.MonkeyPatch, tcp: int) -> None:
    names = NameServer(monkeypatch, "127.0.0.1")
    client = client_of_url(f"redis://redis.internal:{tcp}")
    names.replies.clear()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="was not resolved within") as raised:
            ping(client)
        assert raised.value.is_unsent
        assert raised.value.timed_out
    # one thread waits for the name server, however often it is asked for; what it finds late is used
    assert names.asked == 1
    names.replies.set()
    assert ping(client)
    client.connection_pool.disconnect()
    assert ping(client)
    assert names.asked == 2


def test_all_addresses_of_a_name_share_one_time_limit(monkeypatch: pytest.MonkeyPatch, tcp: int) -> None:
    # a port that accepts no connection any more, at 127.0.0.2: its queue is full
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.2", tcp))
        full.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", tcp))
        time.sleep(0.1)
        NameServer(monkeypatch, "127.0.0.2", "127.0.0.1")
        assert ping(client_of_url(f"redis://redis.internal:{tcp}"))


def test_an_unknown_name_is_refused_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    NameServer(monkeypatch)
    with pytest.raises(StoreUnavailable, match="unknown name"):
        ping(client_of_url("redis://redis.internal:1"))


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_what_cannot_be_a_name_is_refused_as_such(host: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be the name of a host"):
        ping(client_of_url(f"redis://{host}:1"))


def test_at_exit_the_addresses_of_before_are_used(monkeypatch: pytest.MonkeyPatch, tcp: int) -> None:
    names = NameServer(monkeypatch, "127.0.0.1")
    client = client_of_url(f"redis://redis.internal:{tcp}")
    assert ping(client)
    monkeypatch.setattr(threads._STARTS, "ended", True)
    names.replies.clear()
    client.connection_pool.disconnect()
    assert ping(client)
    assert names.asked == 1


def test_the_certificate_is_that_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of_url("rediss://redis.internal:1")
    kinds = client.connection_pool.connection_class.__mro__
    assert kinds.index(redis.SSLConnection) < kinds.index(resolving.ResolvedConnection) < kinds.index(redis.Connection)
