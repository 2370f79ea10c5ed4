"""A real server that is away for a while, and real processes that end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

import snowredis
from snowredis.snowflake.upkeep import heartbeat as process_heartbeat
from snowredis.testing import ManualClock, memory_pool
from tests.support.pools import new_pool
from tests.support.programs import run, start
from tests.support.servers import RedisServer


def test_a_redis_that_does_not_reply_in_time_is_asked_again_within_claim_timeout(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    name = new_pool(own_server.url)
    own_server.kill(signal.SIGSTOP)
    threading.Timer(3.0, own_server.kill, [signal.SIGCONT]).start()
    # longer than the limit of one call, 2 s
    with snowredis.connect(own_server.url, pool=name, claim_timeout=20) as patient:
        assert patient.next_id() > 0
    assert caplog.text.count("Redis does not reply in time; waiting for a worker id, for 20 s at most") == 1


# --- the end ---------------------------------------------------------------------------------------


def test_the_encoding_in_a_url_is_for_the_applications_values(server: RedisServer) -> None:
    with snowredis.connect(f"{server.url}?encoding=no-such&encoding_errors=none", pool=new_pool(server.url)) as ids:
        assert ids.next_id() > 0


def test_interpreter_exit_releases_the_worker_id(server: RedisServer) -> None:
    name = new_pool(server.url)
    program = "tests.snowflake.generator.programs.ends_without_close"
    for ending in ("return", "exit", "del"):
        run(program, server.url, name, ending)
        assert snowredis.WorkerPool(server.url, name).workers() == []
    process = start(program, server.url, name, "raise")
    process.communicate(timeout=20)
    assert snowredis.WorkerPool(server.url, name).workers() == []


def test_exit_is_not_held_up_by_a_redis_that_is_away(own_server: RedisServer) -> None:
    name = new_pool(own_server.url)
    process = start("tests.snowflake.generator.programs.twenty_generators_until_enter", own_server.url, name)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    own_server.kill(signal.SIGSTOP)
    # 20 generators, each of which would wait for seconds on its own
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


def test_a_heartbeat_thread_that_was_refused_is_tried_again_at_the_next_renewal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Background(ManualClock):
        background = True

    attempts: list[str] = []

    def refuse_twice(run: Callable[[], object], name: str) -> None:
        attempts.append(name)
        if len(attempts) <= 2:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process_heartbeat, "start_thread", refuse_twice)
    clock = Background()
    with memory_pool(clock=clock).connect(clock=clock, ttl=3.0) as ids:
        for _ in range(4):
            ids.next_id()
            # past the reservation
            clock.advance(4_000)
        assert ids.counts.renewals >= 3
    assert attempts == ["snowredis-test"] * 3
    assert caplog.text.count("no heartbeat thread (can't start new thread)") == 1


def test_a_test_that_freezes_time_and_makes_the_first_id_leaves_a_generator_that_works(server: RedisServer) -> None:
    program = "tests.snowflake.generator.programs.first_id_of_a_test_that_freezes_time"
    run(program, server.url, new_pool(server.url), timeout_s=20)
