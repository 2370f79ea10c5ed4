"""The embedded server with real processes: which one starts it, which share it, when it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import snowredis
from snowredis import embedded
from snowredis.embedded import home as home_module
from snowredis.embedded.home import Home
from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.snowflake.protocol import PoolConfig
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.waiting import becomes_true

PROGRAMS = Path(__file__).parent / "programs"
USER = PROGRAMS / "user.py"
SLOW_SERVER = PROGRAMS / "slow_redis_server.sh"


class User:
    """A process that uses the server of *home* until it is told to end."""

    def __init__(self, home: Path, *arguments: str, linger_s: float = 0.0) -> None:
        self.process = warm.Popen(
            [sys.executable, USER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "HOME_OF_TEST": str(home),
                "LINGER_S": str(linger_s),
                "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
            },
        )

    def started(self) -> User:
        assert self.process.stdout
        answer = self.process.stdout.readline()
        assert answer, "the user could not start the server; its error is above"
        self.url, self.kind, self.fresh, self.answered, self.child = json.loads(answer)
        return self

    @property
    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def end(self) -> None:
        """End the process, and a forked child, which reads the same pipe."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        self.process.wait(10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "h"
    yield directory
    embedded.stop(directory)


@pytest.fixture
def spawn(home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def spawn(*arguments: str, linger_s: float = 0.0) -> User:
        users.append(User(home, *arguments, linger_s=linger_s))
        return users[-1]

    yield spawn
    for user in users:
        user.kill()
        user.end()


def processes(home: Path) -> dict[str, int]:
    """Return {command line: pid} of the supervisor and the server of *home*. Users have no path in theirs."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system has no /proc to look for orphans in")
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(home) in command:
            found[command] = int(entry.name)
    return found


def supervisor_pid(home: Path) -> int:
    return next(pid for command, pid in processes(home).items() if "snowredis.embedded.supervisor" in command)


def test_eight_processes_that_race_to_start_it_share_one_server(home: Path, spawn: Callable[..., User]) -> None:
    racers = [spawn() for _ in range(8)]
    started = [racer.started() for racer in racers]
    assert {(user.url, user.kind, user.fresh, user.answered) for user in started} == {
        (started[0].url, started[0].kind, True, True)
    }
    assert len(processes(home)) == (1 if "fakeredis" in started[0].kind else 2)


@pytest.mark.parametrize("kind", ["redis-server", "fakeredis"])
def test_nobody_else_may_reach_the_directory_or_the_socket(
    kind: str, home: Path, spawn: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    need(kind, monkeypatch)
    # no port of the machine's network, which every user can connect to
    assert spawn().started().url == f"unix://{home}/redis.sock"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "redis.sock").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["redis-server", "fakeredis"])
def test_a_server_whose_files_were_removed_ends_before_the_next_one_starts(
    kind: str, home: Path, spawn: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    need(kind, monkeypatch)
    first = spawn().started()
    of_first = set(processes(home).values())
    shutil.rmtree(home)
    second = spawn().started()
    assert not of_first & set(processes(home).values())
    # the first process goes on making ids, so no pool is new enough to skip the wait for its floor
    assert not second.fresh
    second.redis.set("key", "of the second")
    assert first.redis.get("key") == "of the second"


def test_the_locks_are_kept_from_programs_that_remove_what_is_old(home: Path, spawn: Callable[..., User]) -> None:
    embedded.stop(home)
    locks = Home(home).locks
    for name in ("start", "users", "identity"):
        (locks / name).touch()
        os.utime(locks / name, (0, 0))
    spawn().started()
    assert becomes_true(lambda: all(file.stat().st_mtime > 0 for file in locks.iterdir()))


@pytest.mark.parametrize("installed", [True, False], ids=["redis-server is there", "it is not"])
def test_a_server_that_keeps_nothing_is_said_unless_it_was_asked_for(
    installed: bool, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    need("fakeredis", monkeypatch)
    if not installed:
        monkeypatch.delenv("SNOWREDIS_EMBEDDED")
        monkeypatch.setattr("snowredis.embedded._on_path", lambda: None)
    embedded.start(home)
    embedded.start(home)
    said = [record.getMessage() for record in caplog.records if "keeps nothing" in record.getMessage()]
    assert len(said) == (0 if installed else 1)


@pytest.mark.parametrize("leave", [User.end, User.kill], ids=["ended", "killed with -9"])
def test_the_server_ends_after_its_last_user(
    home: Path, spawn: Callable[..., User], leave: Callable[[User], None]
) -> None:
    first, last = spawn().started(), spawn().started()
    leave(first)
    # longer than a supervisor that lingers 0 s and looks every 0.5 s would need
    assert not becomes_true(lambda: not last.redis.ping(), 1.5)
    leave(last)
    assert becomes_true(lambda: processes(home) == {})
    assert not (home / "redis.sock").exists()
    assert (Home(home).locks / "supervisor").read_bytes() == b""


def test_the_server_outlives_its_last_user_by_the_linger_time(home: Path, spawn: Callable[..., User]) -> None:
    user = spawn(linger_s=60.0).started()
    before = processes(home)
    user.end()
    assert not becomes_true(lambda: processes(home) != before, 1.5)
    next_user = spawn().started()
    assert processes(home) == before
    assert next_user.fresh


def test_a_forked_child_keeps_the_server_when_its_parent_has_ended(home: Path, spawn: Callable[..., User]) -> None:
    user = spawn("forks").started()
    user.process.wait(10)
    assert not becomes_true(lambda: not user.redis.ping(), 1.5)
    user.end()
    assert becomes_true(lambda: processes(home) == {})


def test_a_child_that_runs_another_program_does_not_keep_the_server(home: Path, spawn: Callable[..., User]) -> None:
    user = spawn("execs").started()
    try:
        user.end()
        assert becomes_true(lambda: processes(home) == {})
        os.kill(user.child, 0)  # it was alive all the time
    finally:
        os.kill(user.child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_no_server_is_left_behind_by_a_supervisor_killed_with_minus_nine(
    home: Path, spawn: Callable[..., User]
) -> None:
    spawn().started()
    os.kill(supervisor_pid(home), signal.SIGKILL)
    assert becomes_true(lambda: processes(home) == {})


def test_every_start_that_races_with_the_end_of_the_server_gets_one_that_answers(
    home: Path, spawn: Callable[..., User]
) -> None:
    supervisors = set()
    for _ in range(300):
        user = spawn().started()
        assert user.answered
        supervisors.add(supervisor_pid(home))
        user.end()
        if len(supervisors) == 3:
            return
    pytest.fail("no server ended between two users, so that nothing was tested")


def test_who_comes_while_the_server_is_ending_waits_and_gets_the_next_one(
    home: Path, spawn: Callable[..., User], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("redis-server", monkeypatch)
    real = shutil.which("redis-server")
    assert real is not None
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "real-redis-server").symlink_to(real)
    shutil.copy(SLOW_SERVER, directory / "redis-server")
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    spawn().started().end()
    assert becomes_true((directory / "ending").exists)
    late = spawn().started()
    assert not becomes_true(lambda: not late.redis.ping(), 1.0)


def need(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", kind)
    try:
        embedded.find_server()
    except StoreUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", ["redis-server", "fakeredis"])
def test_every_kind_of_server_runs_scripts_that_ask_for_time_and_run_id(
    kind: str, spawn: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    need(kind, monkeypatch)
    user = spawn().started()
    assert user.kind == str(embedded.find_server())
    time_s, info = user.redis.eval("return {redis.call('TIME')[1], redis.call('INFO', 'server')}", 0)
    assert abs(int(time_s) - time.time()) < 60
    seen_by_client = user.redis.info("server")
    assert f"run_id:{seen_by_client['run_id']}" in info
    assert len(seen_by_client["run_id"]) == 40
    # a second connection sees what the first wrote
    user.redis.hset("h", "field", "value")
    assert spawn().started().redis.hgetall("h") == {"field": "value"}


def test_a_server_started_while_nobody_uses_another_is_fresh_also_to_those_who_join(spawn: Callable[..., User]) -> None:
    assert [spawn().started().fresh, spawn().started().fresh] == [True, True]


def test_a_flushed_server_is_fresh_no_more(spawn: Callable[..., User]) -> None:
    user = spawn().started()
    user.redis.flushall()
    assert not spawn().started().fresh


def test_a_failed_start_leaves_no_user_behind(
    home: Path, spawn: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = home.parent / "broken-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    kind = embedded.ServerKind(str(broken), "7.0.0")
    monkeypatch.setattr(embedded, "find_server", lambda: kind)
    with pytest.raises(StoreUnavailable, match="did not start"):
        embedded.start(home)
    assert spawn().started().fresh


def test_files_that_cannot_be_written_are_said_and_leave_no_user_behind(home: Path, spawn: Callable[..., User]) -> None:
    # in the way of the new file, as a full or read-only file system is
    in_the_way = Home.make(home).locks / "identity.new"
    in_the_way.mkdir()
    with pytest.raises(StoreUnavailable, match=r"its files cannot be used: .*identity\.new"):
        embedded.start(home)
    in_the_way.rmdir()
    assert spawn().started().fresh


def test_it_starts_where_the_current_directory_was_removed(home: Path, tmp_path: Path) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    program = (
        # loaded before: Python 3.13.0 loads no extension there
        "import os, socket, sys; from snowredis import embedded\n"
        "os.rmdir(sys.argv[1]); embedded.start(sys.argv[2], linger_s=0)"
    )
    done = warm.run(
        [sys.executable, "-c", program, removed, home],
        cwd=removed,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_stop_ends_the_server_at_once_whoever_uses_it(home: Path, spawn: Callable[..., User]) -> None:
    spawn(linger_s=60.0).started()
    embedded.stop(home)
    assert processes(home) == {}
    embedded.stop(home)  # nothing to stop


def link(path: Path) -> None:
    path.symlink_to(path.parent)


def writable_by_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "why"),
    [(link, "not a link"), (writable_by_all, "nobody else can write"), (Path.touch, "cannot be created")],
)
def test_what_is_no_directory_of_this_user_alone_is_refused(
    make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    make(tmp_path / "server")
    with pytest.raises(ConfigError, match=why):
        embedded.start(tmp_path / "server")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(ConfigError, match="belongs to this user"):
        embedded.start(tmp_path)


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 100)
    with pytest.raises(ConfigError, match="shorter directory"):
        embedded.start(directory)
    assert not directory.exists()


def test_the_default_directory_is_one_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for value in (str(tmp_path), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        monkeypatch.setenv("TMPDIR", value)
        monkeypatch.setattr("tempfile.tempdir", value or None)
        found.add(home_module._default())
    (directory,) = found
    assert directory.name == f"snowredis-{os.geteuid()}"


def test_a_person_creates_a_pool_in_a_fresh_server_once(home: Path) -> None:
    with contextlib.closing(snowredis.WorkerPool(f"embedded://{home}", "p")) as pool:
        assert pool.create(PoolConfig(name="p"))
        assert not pool.create(PoolConfig(name="p"))


def test_only_embedded_urls_are_resolved(home: Path) -> None:
    assert embedded.resolve("redis://embedded:6379/0") == "redis://embedded:6379/0"
    url = embedded.resolve(f"embedded://{home}")
    assert redis.Redis.from_url(url).ping()


@pytest.mark.parametrize("url", ["embedded:", "embedded://host/dir", "embedded:///dir?db=1"])
def test_an_embedded_url_with_more_than_a_directory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="embedded:///absolute/directory"):
        embedded.resolve(url)


def test_an_unknown_kind_of_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", "memcached")
    with pytest.raises(ConfigError, match="redis-server, fakeredis"):
        embedded.find_server()


def test_a_machine_without_a_server_hears_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SNOWREDIS_EMBEDDED", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(StoreUnavailable, match="apt install redis-server"):
        embedded.find_server()


@pytest.mark.parametrize("said", ["Redis server v=5.0.7 sha=0", "no version"])
def test_a_server_too_old_for_the_scripts_is_passed_over(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "redis-server"
    old.write_text(f"#!/bin/sh\necho '{said}'\n")
    old.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", "redis-server")
    with pytest.raises(StoreUnavailable, match="not installed"):
        embedded.find_server()


def test_fakeredis_answers_info_to_clients_and_scripts_with_one_run_id_a_server() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    pytest.importorskip("lupa")
    from snowredis.embedded.supervisor import install_info

    install_info()
    install_info()
    server, other = fakeredis.FakeServer(version=(7, 2)), fakeredis.FakeServer()
    seen = [fakeredis.FakeRedis(server=server).info() for _ in range(2)]
    assert seen[0]["run_id"] == seen[1]["run_id"]
    assert seen[0]["redis_version"] == "7.2.0"
    assert seen[0]["run_id"] != fakeredis.FakeRedis(server=other).info()["run_id"]
    in_script = fakeredis.FakeRedis(server=server).eval("return redis.call('INFO', 'server')", 0)
    for name in ("run_id", "master_replid"):
        assert f"{name}:{seen[0][name]}\r\n".encode() in in_script
