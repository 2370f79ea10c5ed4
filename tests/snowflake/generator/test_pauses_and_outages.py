"""Real processes that stop and real servers that go away: the guarantees, and the texts of errors."""

from __future__ import annotations

import signal
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.upkeep import heartbeat as process_heartbeat
from snowredis.testing import ManualClock, memory_pool
from tests.support.pools import new_pool
from tests.support.programs import run, start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

# makes ids as fast as it can; each batch is in the file before it counts as made


def ids_in(path: Path) -> array[int]:
    ids = array("q")
    data = path.read_bytes() if path.exists() else b""
    ids.frombytes(data[: len(data) // 8 * 8])
    return ids


def test_a_process_stopped_beyond_its_ttl_repeats_no_id_of_its_heir(own_server: RedisServer, tmp_path: Path) -> None:
    # one worker id, so that the heir gets the very same
    spec = "41/0/0/0/12"
    name = new_pool(own_server.url, layout=spec, ttl=1.0)
    layout = Layout(backup_bits=0, worker_bits=0, sequence_bits=12)
    first, second = tmp_path / "first", tmp_path / "second"
    paused = start("tests.snowflake.generator.programs.writer", own_server.url, name, str(first), "1", spec)
    heir = None
    try:
        eventually(lambda: len(ids_in(first)) > 1000)
        paused.send_signal(signal.SIGSTOP)
        stopped_at = len(ids_in(first))
        eventually(lambda: not snowredis.WorkerPool(own_server.url, name).workers())
        heir = start("tests.snowflake.generator.programs.writer", own_server.url, name, str(second), "1", spec)
        eventually(lambda: len(ids_in(second)) > 1000)
        paused.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        heir.terminate()
        assert heir.wait(10) == 0
        # the heir released the worker id, so the first takes it up again
        eventually(lambda: len(ids_in(first)) > stopped_at + 1000)
    finally:
        for process in filter(None, (paused, heir)):
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.communicate(timeout=10)
    everything = ids_in(first) + ids_in(second)
    assert len(set(everything)) == len(everything)
    assert all(0 <= layout.decode(an_id).sequence < 4096 for an_id in everything)


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
