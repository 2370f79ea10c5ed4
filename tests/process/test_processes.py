"""A process counts as ended: only what has ended for certain, whatever its pid, its name and its threads are like."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from snowredis.process import names as processes
from snowredis.process.names import ProcessName, has_ended, own_name
from tests.support.programs import start
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def own() -> ProcessName:
    name = own_name()
    assert name is not None
    return name


def name_of(pid: int) -> ProcessName:
    status = processes._status(pid)
    assert status is not None
    return own()._replace(pid=pid, started=status.started)


@contextlib.contextmanager
def sleeping(program: str | Path = "sleep") -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([program, "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_has_ended_when_it_is_a_zombie_and_when_it_is_gone_and_not_before() -> None:
    with sleeping() as process:
        name = name_of(process.pid)
        assert not has_ended(name, own())
        process.send_signal(signal.SIGSTOP)
        assert not has_ended(name, own())
        process.kill()
        eventually(lambda: has_ended(name, own()), "a zombie")
        # nothing was reaped
        assert process.wait() == -signal.SIGKILL
        assert has_ended(name, own())
    assert not has_ended(own(), own())


def test_a_pid_that_is_used_again_belongs_to_another_process() -> None:
    with sleeping() as process:
        assert has_ended(name_of(process.pid)._replace(started="1"), own())
    assert has_ended(own()._replace(started="1", image="1"), own())


def test_a_process_that_was_restored_from_a_checkpoint_at_another_time_has_not_ended() -> None:
    assert not has_ended(own()._replace(started="1"), own())
    with sleeping() as process:
        # in the middle of the exec it has none, or one that is moved once more
        eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text("utf-8").split()[2] == "S", "the sleep")
        status = processes._status(process.pid)
        assert status is not None
        assert status.image
        name = name_of(process.pid)._replace(started="1", image=status.image)
        assert not has_ended(name, own())
        process.kill()
        eventually(lambda: has_ended(name, own()), "a zombie")


def test_only_the_process_itself_takes_an_image_before_an_exec_for_gone() -> None:
    assert own().image.isdigit()
    assert own() == own()
    earlier = own()._replace(image="1")
    assert has_ended(earlier, own())
    assert not has_ended(own()._replace(image=""), own())
    assert not has_ended(earlier, own()._replace(image=""))
    with sleeping() as process:
        assert not has_ended(name_of(process.pid)._replace(image="1"), own())


def test_what_another_container_has_is_never_taken_for_dead() -> None:
    gone = ProcessName("another", 2**22, "1")
    assert not has_ended(gone, own())
    assert has_ended(gone._replace(namespace=own().namespace), own())


@pytest.mark.parametrize("program", ["a) Z 1 (b", "x\ny) X", "((((((((((((((("])
def test_the_name_of_a_program_does_not_make_it_a_zombie(tmp_path: Path, program: str) -> None:
    copied = tmp_path / program
    shutil.copy(shutil.which("sleep") or "/bin/sleep", copied)
    with sleeping(copied) as process:
        name = name_of(process.pid)
        assert name.started.isdigit()
        assert not has_ended(name, own())


def test_a_process_whose_first_thread_ended_before_the_others_has_not_ended() -> None:
    process = start("tests.process.programs.first_thread_ends")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "alone\n"
        eventually(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes(), "a zombie thread")
        assert not has_ended(name_of(process.pid), own())
    finally:
        process.kill()
        process.wait()


def test_what_cannot_be_read_is_taken_for_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    with sleeping() as process:
        name, me = name_of(process.pid), own()
        monkeypatch.setattr(processes, "_status", lambda _: None)
        # /proc mounted with hidepid
        assert not has_ended(name, me)
        assert own_name() is None


def test_a_proc_of_other_pids_and_a_kernel_without_a_name_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else readlink(path))
    assert own_name() is None


def test_where_there_is_no_proc_a_process_has_ended_when_it_was_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(processes, "_status", lambda _: None)
    with sleeping() as process:
        name = own()._replace(pid=process.pid)
        assert not has_ended(name, own())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not has_ended(name, own())
        process.wait()
        assert has_ended(name, own())
