"""Real processes that share a lease, with a real redis-server: start, fork, kill, stop, end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError
from snowredis.testing import memory_pool
from tests.host.conftest import TTL_S, HostProcess
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    snowredis.IMPLEMENTATION != "c" or sys.platform != "linux", reason="needs the fast path in C, on Linux"
)

Start = Callable[..., HostProcess]

TAKE = "ids.next_ids(2000)"
WORKER = "ids.claim().worker"


def check_distinct(*lists: list[int]) -> None:
    every = [an_id for each in lists for an_id in each]
    assert len(set(every)) == len(every)


def test_processes_of_a_host_have_one_worker_id_and_never_the_same_id(start: Start, pool: snowredis.WorkerPool) -> None:
    processes = [start() for _ in range(4)]
    check_distinct(*(process.ask(TAKE) for process in processes for _ in range(3)))
    (worker,) = pool.workers()
    assert {process.ask(WORKER) for process in processes} == {worker.worker}
    assert sum(process.ask("ids.counts.claims") for process in processes) == 1


def test_only_one_of_them_renews(start: Start) -> None:
    processes = [start() for _ in range(3)]
    for process in processes:
        process.ask(TAKE)
    time.sleep(2 * TTL_S)
    renewals = [process.ask("ids.counts.renewals") for process in processes]
    assert sorted(renewals)[:2] == [0, 0]
    assert max(renewals) >= 4


def test_when_the_process_that_renews_is_killed_another_goes_on(start: Start, pool: snowredis.WorkerPool) -> None:
    first, second = start(), start()
    before = first.ask(TAKE) + second.ask(TAKE)
    worker = second.ask(WORKER)
    first.kill()
    time.sleep(2 * TTL_S)
    check_distinct(before, second.ask(TAKE))
    assert second.ask(WORKER) == worker
    assert second.ask("ids.counts.renewals") > 0
    assert len(pool.workers()) == 1


def test_a_stopped_process_stops_no_other_and_goes_on_afterwards(start: Start) -> None:
    first, second = start(), start()
    made = first.ask(TAKE) + second.ask(TAKE)
    first.send(signal.SIGSTOP)
    time.sleep(2 * TTL_S)
    made += second.ask(TAKE)
    first.send(signal.SIGCONT)
    made += first.ask(TAKE) + second.ask(TAKE)
    check_distinct(made)
    assert first.ask(WORKER) == second.ask(WORKER)


def test_a_process_that_starts_after_all_were_killed_goes_on_with_their_lease(start: Start) -> None:
    first = start()
    made, worker = first.ask(TAKE), first.ask(WORKER)
    first.kill()
    second = start()
    check_distinct(made, second.ask(TAKE))
    assert (second.ask(WORKER), second.ask("ids.counts.claims")) == (worker, 0)


def test_a_process_starts_while_redis_is_away(start: Start, server: RedisServer) -> None:
    first = start()
    made = first.ask(TAKE)
    server.kill()
    check_distinct(made, start().ask(TAKE))


def test_all_go_on_in_the_outage_lane_and_come_back(start: Start, server: RedisServer) -> None:
    first, second = start(), start()
    made = first.ask(TAKE) + second.ask(TAKE)
    server.kill(signal.SIGSTOP)
    time.sleep(1.5 * TTL_S)
    made += first.ask(TAKE) + second.ask(TAKE)
    assert first.ask("ids.in_outage_lane")
    server.kill(signal.SIGCONT)
    eventually(lambda: not second.ask("ids.next_id() and ids.in_outage_lane"), "an ordinary lane", 10)
    check_distinct(made, first.ask(TAKE), second.ask(TAKE))


def test_the_last_process_releases(start: Start, pool: snowredis.WorkerPool) -> None:
    first, second = start(), start()
    first.ask(TAKE)
    second.ask(TAKE)
    assert first.end() == ""
    assert len(pool.workers()) == 1
    assert second.end() == ""
    assert pool.workers() == []


def test_a_suspended_process_makes_no_ids_and_comes_back(start: Start, pool: snowredis.WorkerPool) -> None:
    process = start()
    made = process.ask(TAKE)
    process.ask("ids.suspend()")
    assert pool.workers() == []
    assert process.ask("ids.next_id()")["error"] == "GeneratorSuspended"
    process.ask("ids.resume()")
    check_distinct(made, process.ask(TAKE))


def test_a_forked_child_goes_on_with_the_word(start: Start) -> None:
    parent = start()
    made = parent.ask(TAKE)
    child = (
        "(lambda ends, pid: (os.write(ends[1], json.dumps([ids.next_ids(50), ids.counts.claims]).encode()),"
        " os._exit(0))"
        " if not pid else (os.waitpid(pid, 0), json.loads(os.read(ends[0], 10**5)))[1])(os.pipe(), os.fork())"
    )
    ids, claims = parent.ask(child)
    check_distinct(made, ids, parent.ask(TAKE))
    assert claims == 0


def test_a_child_forked_in_c_goes_on_with_the_word(start: Start) -> None:
    parent = start()
    made = parent.ask(TAKE)
    child = (
        "(lambda ends, pid: (os.write(ends[1], json.dumps(ids.next_ids(50)).encode()), os._exit(0))"
        " if not pid else (os.waitpid(pid, 0), json.loads(os.read(ends[0], 10**5)))[1])"
        "(os.pipe(), __import__('ctypes').PyDLL(None).fork())"
    )
    check_distinct(made, parent.ask(child), parent.ask(TAKE))


# ids of one, of many, and of children that are forked in the middle of a tick
MIXED = """
def mixed():
    made, of_children = [], []
    ids.claim()
    for turn in range(150):
        made += [ids.next_id() for _ in range(turn % 23)]
        ends = os.pipe()
        if turn % 5 == 0 and not os.fork():
            os.write(ends[1], json.dumps([ids.next_id() for _ in range(12)]).encode())
            os._exit(0)
        made += [ids.next_id() for _ in range(12)]
        if turn % 5 == 0:
            of_children += json.loads(os.read(ends[0], 10_000))
            os.wait()
        made += ids.next_ids(turn % 7 + 1)
        for end in ends:
            os.close(end)
    return made, of_children
"""


def test_ids_that_were_taken_at_once_grow_and_no_child_has_them(start: Start) -> None:
    beside, process = start(), start()
    beside.ask(TAKE)
    assert process.ask(f"exec({MIXED!r}, globals())") is None
    made, of_children = process.ask("mixed()")
    assert made == sorted(made)
    assert len(of_children) == 30 * 12
    check_distinct(made, of_children, beside.ask(TAKE))


def test_another_label_is_another_lease(start: Start) -> None:
    assert start(label="web").ask(WORKER) != start(label="tasks").ask(WORKER)


def test_the_owner_names_the_processes(start: Start, server: RedisServer) -> None:
    processes = [start() for _ in range(3)]
    for process in processes:
        process.ask(TAKE)
    time.sleep(TTL_S / 2)
    record: Any = server.client().hgetall("snowredis:{orders}")
    owners = [text[text.index("{") :] for name, text in record.items() if name.startswith("w:")]
    assert sorted(process.pid for process in processes) == json.loads(owners[0])["pids"]


def test_whois_names_the_host(start: Start, pool: snowredis.WorkerPool, server: RedisServer) -> None:
    process = start()
    an_id = process.ask("ids.next_id()")
    shown = subprocess.run(
        [sys.executable, "-m", "snowredis", "whois", str(an_id), "--pool", "orders", "--url", server.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert os.uname().nodename in shown.stdout


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"SNOWREDIS_CRASH_RECORDS": "off"}, "there is no directory"),
        ({"SNOWREDIS_PURE": "1"}, "needs the fast path in C"),
    ],
)
def test_a_process_that_cannot_share_has_a_lease_of_its_own_and_says_why(
    start: Start, environment: dict[str, str], reason: str
) -> None:
    shared, alone = start(), start(environment)
    check_distinct(shared.ask(TAKE), alone.ask(TAKE))
    assert shared.ask(WORKER) != alone.ask(WORKER)
    assert reason in alone.end()


def test_a_directory_that_is_not_in_memory_is_refused(start: Start, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    alone = start({"SNOWREDIS_CRASH_RECORDS": str(tmp_path)})
    alone.ask(TAKE)
    text = alone.end()
    if "cannot be used" not in text:
        pytest.skip("tmp_path is on tmpfs")
    assert "is not on tmpfs" in text


# the turn, the header, all credentials
@pytest.mark.parametrize(("offset", "size", "claims"), [(192, 8, 1), (200, 8, 2), (4096, 8 * 3072, 2)])
def test_damage_of_the_page_costs_a_worker_id_and_no_id(
    start: Start, records: str, offset: int, size: int, claims: int
) -> None:
    first = start()
    made = first.ask(TAKE)
    (page,) = Path(records).glob("host1.*")
    with page.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * size)
    time.sleep(2 * TTL_S)
    check_distinct(made, first.ask(TAKE))
    assert first.ask("ids.counts.claims") == claims
    assert "Traceback" not in first.end()


def test_a_copy_of_the_page_is_not_another_page_with_the_same_lease(start: Start, records: str) -> None:
    first = start()
    made = first.ask(TAKE)
    (page,) = Path(records).glob("host1.*")
    copy = page.with_name("copy")
    shutil.copy(page, copy)
    copy.replace(page)
    second = start()
    check_distinct(made, *(process.ask(TAKE) for process in (second, first, second)))
    assert first.ask(WORKER) != second.ask(WORKER)
    assert "is a copy of another file. Remove it." in second.end()


def test_a_page_of_another_size_is_refused_until_it_is_removed(start: Start, records: str) -> None:
    first = start()
    made = first.ask(TAKE)
    (page,) = Path(records).glob("host1.*")
    first.end()
    page.write_bytes(page.read_bytes()[:1000])
    for _ in range(2):
        alone = start()
        check_distinct(made, alone.ask(TAKE))
        assert "is damaged: it has 1000 bytes. Remove it." in alone.end()
    page.unlink()
    assert start().end() == ""


@pytest.mark.parametrize("setting", [{"clock_policy": "ahead"}, {"overflow": "ahead"}, {"sequence_start": "random"}])
def test_settings_that_need_a_state_of_each_process_are_refused(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        snowredis.connect("redis://localhost:1", lease="host", **setting)  # type: ignore[arg-type]


def test_a_pool_in_memory_is_used_as_with_a_lease_of_a_process() -> None:
    with memory_pool().connect(lease="host") as ids:
        check_distinct(ids.next_ids(100))


def test_the_variable_sets_it(server: RedisServer, pool: snowredis.WorkerPool, records: str) -> None:
    program = "import os, snowredis; snowredis.next_id(); print(os.listdir(os.environ['R']))"
    environment = {
        "SNOWREDIS_URL": server.url,
        "SNOWREDIS_POOL": "orders",
        "SNOWREDIS_TTL": str(TTL_S),
        "R": records,
    }
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment | {"SNOWREDIS_LEASE": "host"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'host1." in shown.stdout


def test_no_id_is_repeated_in_a_storm_of_kills_and_stops() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.host.storm", "--seconds", "8"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(shown.stdout.splitlines()[-1])
    assert found["repeated"] == 0
    assert found["ids"] > 10_000
    assert found["kills"] > 0
