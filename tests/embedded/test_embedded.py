"""The embedded server with real processes: who starts it, who shares it, what it survives."""

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
from typing import Any

import pytest
import redis

import snowredis
from snowredis import embedded
from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.snowflake.protocol.pool_config import pool_keys
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.waiting import eventually

USER = Path(__file__).parent / "programs" / "user.py"
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}


class User:
    """A process that uses the server of *home* until it is told to end."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = warm.Popen(
            [sys.executable, USER, home, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
        )

    def started(self) -> User:
        self.url, self.fresh = json.loads(self.line())
        return self

    def line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the user failed; its error is above"
        return str(line)

    def end(self) -> None:
        """End the process, and a forked child, which reads the same pipe."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait(10)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "h"
    yield directory
    embedded.stop(directory)


@pytest.fixture
def spawn(home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def spawn(*arguments: str) -> User:
        users.append(User(home, *arguments))
        return users[-1]

    yield spawn
    for user in users:
        user.process.kill()
        user.end()


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server")


def use(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "fakeredis":
        pytest.importorskip("fakeredis")
        pytest.importorskip("lupa")
        monkeypatch.setenv("PATH", "")
    elif not shutil.which(kind):
        pytest.skip(f"no {kind}")


def client_of(server: embedded.Server | User) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def servers_of(home: Path) -> list[int]:
    """Return the pids of all servers of *home* that run."""
    pids = [int(word) for word in Path(f"{home}.lock").read_text().split()]
    return [pid for pid in pids if pid and is_alive(pid)]


def is_alive(pid: int) -> bool:
    # a server is no child of the test; one that has ended is reaped by others, in their time
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def kill(home: Path) -> None:
    """Kill the server with -9."""
    (pid,) = servers_of(home)
    kill_pid(pid)


def kill_pid(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid), "the end of the server")


def made_by(home: Path) -> set[int]:
    """Return ids of a process that claims now."""
    with snowredis.connect(f"embedded://{home}", pool="p", ttl=2) as ids:
        made = set(ids.next_ids(20_000))
    assert len(made) == 20_000
    return made


# --- start, share, stop -----------------------------------------------------------------------------


def test_eight_processes_that_race_to_start_it_share_one_server(home: Path, spawn: Callable[..., User]) -> None:
    started = [user.started() for user in [spawn() for _ in range(8)]]
    assert {(user.url, user.fresh) for user in started} == {(f"unix://{home}/redis.sock", True)}
    assert len(servers_of(home)) == 1


@pytest.mark.parametrize("kind", ["redis-server", "fakeredis"])
def test_nobody_else_may_reach_the_directory_or_the_socket(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(kind, monkeypatch)
    # no port of the machine's network, which every user can connect to
    assert embedded.start(home).url == f"unix://{home}/redis.sock"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "redis.sock").stat().st_mode & 0o777 == 0o700
    assert Path(f"{home}.lock").stat().st_mode & 0o777 == 0o600


def test_it_runs_until_it_is_stopped_and_keeps_what_was_stored(home: Path, spawn: Callable[..., User]) -> None:
    user = spawn().started()
    client_of(user).set("key", "value")
    user.end()
    assert client_of(spawn().started()).get("key") == "value"
    embedded.stop(home)
    assert servers_of(home) == []
    embedded.stop(home)  # nothing to stop


@pytest.mark.usefixtures("real")
def test_a_pool_with_the_default_settings_gives_a_new_worker_ids_at_once_after_kill_minus_nine(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with snowredis.connect(f"embedded://{home}", pool="p") as first:
        made = [first.next_id()]
        kill(home)
        with snowredis.connect(f"embedded://{home}", pool="p") as second:
            made.append(second.next_id())
        made.append(first.next_id())
    assert len(set(made)) == 3
    assert "new workers wait" not in caplog.text


@pytest.mark.usefixtures("real")
def test_no_id_is_repeated_while_the_server_is_killed_and_started_again_and_again(
    home: Path, spawn: Callable[..., User]
) -> None:
    embedded.start(home)
    # claims in turn, and makes ids in the pauses of the server
    users = [spawn("makes").started() for _ in range(2)]
    lines = [user.line() for user in users]
    for _ in range(5):
        kill(home)
        lines += [" ".join(map(str, made_by(home)))]
    kill(home)
    for user in users:
        assert user.process.stdout
        lines += user.process.stdout.readlines()
    made = [int(word) for line in lines for word in line.split()]
    assert len(made) > 100_000
    assert len(made) == len(set(made))


@pytest.mark.usefixtures("real")
def test_a_forked_child_does_not_keep_the_lock_of_a_server_that_has_ended(
    home: Path, spawn: Callable[..., User]
) -> None:
    # the child has whatever its parent had open
    user = spawn("forks").started()
    user.process.wait(10)
    kill(home)
    assert client_of(embedded.start(home)).ping()


def test_a_child_forked_while_another_thread_starts_the_server_gives_up_its_copy_of_the_lock(home: Path) -> None:
    from snowredis.embedded import _Lock

    home.mkdir(mode=0o700)
    with _Lock(home) as lock:
        assert lock.acquire()
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, b"forked")
            time.sleep(60)
            os._exit(0)
        os.read(read, 6)
    try:
        with _Lock(home) as again:
            assert again.acquire()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.usefixtures("real")
def test_a_server_that_hangs_is_killed_and_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_SILENCE_LIMIT_S", 1.0)
    client_of(embedded.start(home)).set("key", "value")
    (pid,) = servers_of(home)
    os.kill(pid, signal.SIGSTOP)
    assert client_of(embedded.start(home)).get("key") == "value"
    assert pid not in servers_of(home)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("after_ms", range(0, 60, 15))
def test_a_start_that_was_killed_at_any_moment_blocks_nobody(
    after_ms: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_SILENCE_LIMIT_S", 1.0)
    program = "import sys; from snowredis import embedded; embedded.start(sys.argv[1])"
    starter = subprocess.Popen([sys.executable, "-c", program, home], env=os.environ | ENVIRONMENT)
    eventually(lambda: Path(f"{home}.lock").exists(), "the start")
    time.sleep(after_ms / 1000)
    starter.kill()
    starter.wait()
    assert client_of(embedded.start(home)).ping()
    assert len(servers_of(home)) == 1


# --- files that are removed, full or foreign ---------------------------------------------------------


@pytest.mark.usefixtures("real")
def test_a_server_whose_directory_was_removed_ends_before_the_next_one_starts_and_no_id_is_repeated(
    home: Path, spawn: Callable[..., User]
) -> None:
    user = spawn("makes").started()
    first = user.line()
    (pid,) = servers_of(home)
    shutil.rmtree(home)
    assert not embedded.start(home).fresh
    assert not is_alive(pid)
    made = made_by(home)
    assert user.process.stdin
    assert user.process.stdout
    user.process.stdin.close()
    of_user = {int(word) for line in (first, *user.process.stdout) for word in line.split()}
    assert len(of_user) > 1000
    assert not made & of_user


@pytest.mark.usefixtures("real")
def test_a_pool_that_a_person_removed_while_a_process_makes_ids_is_no_new_one(home: Path) -> None:
    with snowredis.connect(f"embedded://{home}", pool="p", ttl=2) as living:
        before = living.next_id()
        client_of(embedded.start(home)).delete(*pool_keys("p"))
        made = made_by(home)
    # all that the living one had has ended
    assert (min(made) >> 22) - (before >> 22) >= 2_000


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("gone", ["*", "appendonlydir", "appendonlydir/*.manifest", "redis.sock", "../h.lock"])
def test_programs_that_remove_old_files_block_nobody_and_repeat_no_id(
    gone: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as long as a server without its socket is waited for
    monkeypatch.setattr(embedded, "_SILENCE_LIMIT_S", 2.0)
    made = made_by(home)
    (pid,) = servers_of(home)
    for path in home.glob(gone):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(3):
        again = made_by(home)
        assert not made & again
        made |= again
        pid = servers_of(home)[-1] if Path(f"{home}.lock").exists() else pid
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            kill_pid(pid)


def test_each_start_keeps_the_files_from_programs_that_remove_what_is_old(home: Path) -> None:
    embedded.start(home)
    files = [Path(f"{home}.lock"), home, *home.rglob("*")]
    for path in files:
        os.utime(path, (0, 0))
    embedded.start(home)
    assert all(path.stat().st_mtime > 0 for path in files if path != home)


@pytest.mark.usefixtures("real")
def test_on_a_full_disk_nothing_is_made_and_afterwards_it_goes_on(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    home = disk / "h"
    try:
        made = made_by(home)
        with contextlib.suppress(OSError), (disk / "full").open("wb") as file:
            while True:
                file.write(bytes(1024))
                file.flush()
        with pytest.raises(snowredis.SnowredisError):
            made |= set.union(*(made_by(home) for _ in range(10)))
        (disk / "full").unlink()
        assert not made & made_by(home)
    finally:
        embedded.stop(home)
        subprocess.run(["umount", disk], check=True)


def link(path: Path) -> None:
    path.symlink_to(path.parent)


def writable_by_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize("make", [link, writable_by_all, Path.touch])
def test_what_is_no_directory_of_this_user_alone_is_refused(make: Callable[[Path], Any], tmp_path: Path) -> None:
    make(tmp_path / "server")
    with pytest.raises(ConfigError, match="must be a directory, not a link, that belongs to this user"):
        embedded.start(tmp_path / "server")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_files_of_another_user_are_refused(home: Path) -> None:
    lock = Path(f"{home}.lock")
    lock.touch(0o666)
    os.chown(lock, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to another user"):
        embedded.start(home)
    lock.unlink()
    home.mkdir(exist_ok=True)
    os.chown(home, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to this user"):
        embedded.start(home)
    home.rmdir()


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="path too long"):
        embedded.start(tmp_path / ("x" * 100))


def test_the_default_directory_is_one_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(Path, "mkdir", lambda path, **_: made.append(path))
    for value in (str(tmp_path), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        monkeypatch.setenv("TMPDIR", value)
        with contextlib.suppress(StoreUnavailable), embedded._own_errors(None):
            pass
    assert {path.name for path in made} == {f"snowredis-{os.geteuid()}"}
    assert len(set(made)) == 1


# --- the program ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["redis-server", "fakeredis"])
def test_every_kind_of_server_runs_scripts_that_ask_for_time_and_run_id(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(kind, monkeypatch)
    assert embedded.find_server()[0] == kind
    client, other = client_of(embedded.start(home)), client_of(embedded.start(home))
    time_s, info = client.eval("return {redis.call('TIME')[1], redis.call('INFO', 'server')}", 0)
    assert abs(int(time_s) - time.time()) < 60
    assert f"run_id:{client.info('server')['run_id']}" in info
    # a second connection sees what the first wrote
    client.hset("h", "field", "value")
    assert other.hgetall("h") == {"field": "value"}


def test_fakeredis_keeps_nothing_so_only_its_first_start_is_fresh_and_the_log_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use("fakeredis", monkeypatch)
    assert embedded.start(home).fresh
    assert "keeps nothing" in caplog.text
    embedded.stop(home)
    assert not embedded.start(home).fresh


@pytest.mark.usefixtures("real")
def test_a_flushed_server_is_not_fresh_any_more(home: Path) -> None:
    client_of(embedded.start(home)).flushall()
    assert not embedded.start(home).fresh
    kill(home)
    assert not embedded.start(home).fresh


def test_a_program_that_does_not_start_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = home.parent / "redis-server"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && echo v=7.0.0\n")
    broken.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{home.parent}:{os.environ['PATH']}")
        with pytest.raises(StoreUnavailable, match=r"does not start or reply; see .*/log"):
            embedded.start(home)
    assert client_of(embedded.start(home)).ping()


@pytest.mark.parametrize("url", ["embedded:", "embedded://host/dir", "embedded:///dir?db=1"])
def test_an_embedded_url_with_more_than_a_directory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="embedded:///absolute/directory"):
        embedded.join(url)


def test_a_machine_without_a_server_hears_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(StoreUnavailable, match="apt install redis-server"):
        embedded.find_server()


@pytest.mark.parametrize("said", ["Redis server v=5.0.7 sha=0", "no version"])
def test_a_server_too_old_for_the_scripts_is_passed_over(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("fakeredis", monkeypatch)
    old = tmp_path / "redis-server"
    old.write_text(f"#!/bin/sh\necho '{said}'\n")
    old.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded.find_server()[0] == "fakeredis"


def test_fakeredis_answers_info_to_clients_and_scripts_with_one_run_id_a_server() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    pytest.importorskip("lupa")
    from snowredis.embedded import install_info

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
