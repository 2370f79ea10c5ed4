"""One time limit for a whole call."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import TimeoutError as TimedOut

from snowredis.servers.connections import CALL_LIMIT_S, limits, prepare, remaining_s, time_limit


def test_of_nested_limits_the_nearest_counts_also_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with time_limit(1.0):
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == 1.0
        now_s += 1.5
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == -0.5
    assert remaining_s() == float("inf")


def test_a_limit_whose_end_was_interrupted_limits_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raised before the with block began, and somebody keeps its error."""
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    interrupted = time_limit(1.0)
    interrupted.__enter__()
    now_s += 10
    with time_limit(CALL_LIMIT_S):
        assert remaining_s() == CALL_LIMIT_S
    interrupted.__exit__(None, None, None)


@pytest.fixture
def dripping() -> Iterator[redis.Redis]:
    """A client of a server whose replies come byte by byte, each byte long before the limit of a read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                while connection.recv(65_536):
                    for byte in b"+PONG\r\n":
                        time.sleep(0.1)
                        connection.sendall(bytes((byte,)))

        threading.Thread(target=serve, daemon=True).start()
        settings: dict[str, Any] = {"protocol": 2, "driver_info": None}
        yield prepare(redis.Redis(port=listener.getsockname()[1], **settings, **limits()))
        listener.shutdown(socket.SHUT_RDWR)


def test_a_reply_that_comes_byte_by_byte_ends_with_the_call(dripping: redis.Redis) -> None:
    assert dripping.ping()
    with time_limit(0.3), pytest.raises(TimedOut):
        dripping.ping()
