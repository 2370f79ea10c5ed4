"""`run`: a program of any kind has a worker id, and never longer than it is reserved."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis import WorkerPool
from snowredis.cli.commands.run import ProgramLease, _Killer
from snowredis.core.layout import layout_spec
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import memory_pool
from tests.support import warm
from tests.support.programs import start as begin
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
CHILD = [sys.executable, str(ROOT / "tests/cli/programs/child_of_run.py")]
TTL_S = 4.0


Start = Callable[..., subprocess.Popen[str]]


def command(server: RedisServer, *words: str) -> list[str]:
    return [sys.executable, "-m", "snowredis", "run", "--url", server.url, "--pool", "p", "--", *words]


@pytest.fixture
def start(own_server: RedisServer) -> Iterator[Start]:
    """Start `snowredis run` on a pool with a short ttl, as a session of its own."""
    WorkerPool(own_server.url, "p").create(
        PoolConfig(name="p", ttl_ms=int(TTL_S * 1000), max_clock_lead_ms=300, failover_slack_ms=300)
    )
    started = []

    def run(*words: str) -> subprocess.Popen[str]:
        started.append(
            warm.Popen(
                command(own_server, *words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL, text=True, start_new_session=True,
            )
        )  # fmt: skip
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_running(path: Path) -> bool:
    return len(lines(path)) > 2


def last_ms(path: Path) -> int:
    return int([line for line in lines(path) if line.isdigit()][-1])


def pid_of(path: Path) -> int:
    return int(lines(path)[0].split()[1])


def until_ms(server: RedisServer) -> int:
    """End of the only lease of the pool, as Redis has it."""
    (worker,) = WorkerPool(server.url, "p").workers()
    return worker.until_ms


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_gets_its_worker_id_and_its_exit_code_is_passed_on(start: Start) -> None:
    names = ("WORKER_ID", "DATACENTER", "LAYOUT", "FROM", "UNTIL")
    script = f"echo {' '.join(f'$SNOWREDIS_{name}' for name in names)}; exit 7"
    process = start("sh", "-c", script)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 7, err
    worker, datacenter, layout, begin, until = out.split()
    assert (worker, datacenter, layout) == ("0", "0", layout_spec(snowredis.Layout()))
    assert int(begin) <= time.time() * 1000 < int(until) + 1
    # what the program used is unknown: nobody gets the worker id before its reservation has ended
    other = start("sh", "-c", "echo $SNOWREDIS_WORKER_ID")
    assert other.communicate(timeout=30)[0].strip() == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    # ignored by nohup, or in the background: it would stay so
    before = signal.signal(number, signal.SIG_DFL)
    process = start(*CHILD, str(tmp_path / "out"))
    signal.signal(number, before)
    eventually(lambda: is_running(tmp_path / "out"), "the program", 30)
    process.send_signal(number)
    process.communicate(timeout=30)
    # Python ends with 130 or by the signal itself
    assert process.returncode in (128 + number, 1)
    assert is_gone(pid_of(tmp_path / "out"))


def test_the_whole_group_ends_when_run_is_killed(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start("sh", "-c", f"{' '.join(CHILD)} {out} stubborn & wait")
    eventually(lambda: is_running(out), "the program", 30)
    process.kill()
    eventually(lambda: is_gone(pid_of(out)), "the end of the program", 5)


@pytest.mark.parametrize("fault", ["run stopped", "redis away", "redis stopped"])
def test_the_program_ends_before_its_reservation(
    start: Start, own_server: RedisServer, tmp_path: Path, fault: str
) -> None:
    out = tmp_path / "out"
    process = start(*CHILD, str(out), "stubborn")
    eventually(lambda: is_running(out), "the program", 30)
    time.sleep(1)
    if fault == "run stopped":
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
    end_ms, redis_pid = until_ms(own_server), own_server.client().info()["process_id"]
    if fault == "redis away":
        own_server.kill()
    elif fault == "redis stopped":
        os.kill(redis_pid, signal.SIGSTOP)
    # a renewal may have been under way
    eventually(lambda: is_gone(pid_of(out)), "the end of the program", 2 * TTL_S + 5)
    assert last_ms(out) < end_ms + (1000 if fault != "run stopped" else 0)
    if fault == "run stopped":
        process.send_signal(signal.SIGCONT)
    else:
        _, err = process.communicate(timeout=30)
        assert process.returncode == 8, err
        assert "could not be renewed" in err
    if fault == "redis stopped":
        os.kill(redis_pid, signal.SIGCONT)


def tell(killer: _Killer, times: int) -> None:
    for _ in range(times):
        killer.tell(0, 1)


def in_time(function: Callable[..., None], *args: Any) -> None:
    """Call *function* in a thread, and check that it returns."""
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_a_killer_that_reads_nothing_is_replaced_and_stops_neither_run_nor_its_end() -> None:
    killer = _Killer()
    for times in (5_000, 1):
        stopped = killer._process
        stopped.send_signal(signal.SIGSTOP)
        # 64 KiB are the room of the pipe
        in_time(tell, killer, times)
        assert (killer._process is stopped) == (times == 1)
    in_time(killer.close)
    assert killer._process.returncode == -signal.SIGKILL


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_programs_in_node_and_python_repeat_no_id(start: Start, own_server: RedisServer) -> None:
    programs = [start("node", str(ROOT / "examples/node_ids.js"), "50000") for _ in range(2)]
    settings = {"pool": "p", "ttl": TTL_S, "max_clock_lead": 0.3, "failover_slack": 0.3}
    made: list[int] = []
    with (
        snowredis.connect(own_server.url, **settings) as one,  # type: ignore[arg-type]
        snowredis.connect(own_server.url, **settings) as two,  # type: ignore[arg-type]
    ):
        for _ in range(5):
            made += one.next_ids(10_000) + two.next_ids(10_000)
    for program in programs:
        out, err = program.communicate(timeout=60)
        assert program.returncode == 0, err
        ids = list(map(int, out.split()))
        assert ids == sorted(ids)
        made += ids
    assert len(set(made)) == len(made) == 200_000


_CLUSTER = """
const cluster = require("cluster");
const example = process.argv[2];
if (cluster.isPrimary) for (let i = 0; i < 3; i++) cluster.fork();
else {
  process.argv[2] = "2000";
  require(example);
  process.stdout.write("", () => process.disconnect());
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_processes_that_inherit_a_worker_id_make_no_ids(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "server.js"
    script.write_text(_CLUSTER)
    out, err = start("node", str(script), str(ROOT / "examples/node_ids.js")).communicate(timeout=60)
    assert "each process needs its own worker id" in err
    assert out == ""


def test_what_cannot_run_is_an_error_before_a_worker_id_is_claimed(start: Start, own_server: RedisServer) -> None:
    process = start("/no/such/program")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "/no/such/program does not start" in err
    assert snowredis.WorkerPool(own_server.url, "p").info().claims == 0
    process = start()
    process.communicate(timeout=30)
    assert process.returncode == 2


def test_a_worker_id_is_valid_until_it_is_closed() -> None:
    pool = memory_pool()
    with (
        contextlib.closing(ProgramLease({"pool": "orders", "url": pool})) as mine,
        contextlib.closing(ProgramLease({"pool": "orders", "url": pool})) as other,
    ):
        assert {mine.worker, other.worker} == {0, 1}
        assert mine.from_ms <= time.time() * 1000
        assert 20 < mine.left_s <= 33
    assert mine.left_s == 0
    # the other program may have used every namespace
    (store,) = pool._stores.values()
    assert all(min(record.lanes_ms[:-1]) >= mine.from_ms + 20_000 for record in store._records.values())
    with contextlib.closing(ProgramLease({"pool": "orders", "url": pool})) as third:
        assert third.worker == 2


def test_the_outage_lane_is_not_for_other_programs(own_server: RedisServer) -> None:
    """Their ids have 0 in the backup bits. So no worker id is valid in an outage, neither an old nor a new one."""
    WorkerPool(own_server.url, "p").create(PoolConfig(name="p", ttl_ms=2000, outage_reserve_ms=3_600_000))
    settings: dict[str, Any] = {"url": own_server.url, "pool": "p", "ttl": 2, "outage_reserve": 3600}
    killed = begin("tests.snowflake.crash.programs.makes_ids", own_server.url, "p", "2")
    assert killed.stdin is not None
    assert killed.stdout is not None
    killed.stdin.write("\n")
    killed.stdin.flush()
    assert int(killed.stdout.readline())
    with contextlib.closing(ProgramLease(settings)) as mine:
        own_server.kill()
        killed.kill()
        killed.communicate()
        eventually(lambda: not mine.left_s, "the end of the reservation", 10)
        assert not mine._ids.in_outage_lane
        with pytest.raises(snowredis.StoreUnavailable):
            ProgramLease(settings)


def test_no_crash_record_is_kept_of_the_worker_id_of_a_program(own_server: RedisServer) -> None:
    WorkerPool(own_server.url, "p").create(PoolConfig(name="p"))
    with contextlib.closing(ProgramLease({"pool": "p", "url": own_server.url})) as mine:
        held = mine._ids._lease_manager.held
        assert held is not None
        assert not held.is_recorded
