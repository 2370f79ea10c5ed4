"""Forks: the guard where the system helps less (no wiped page, the pid of the parent), and processes that fork."""

import gc
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.process.fork import ForkGuard
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.upkeep.heartbeat import Heartbeat
from snowredis.testing import memory_pool
from snowredis.worker_pool import WorkerPool
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.programs import in_background, run
from tests.support.servers import RedisServer, redis_server


class Member:
    """Counts how often it was reset."""

    def __init__(self) -> None:
        self.resets = 0

    def _after_fork(self) -> None:
        self.resets += 1


def in_child(run: Callable[[], int]) -> int:
    """Fork; return what *run* returns in the child, 0 to 255."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = run()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_with_the_pid_of_its_parent_is_reset_without_a_wiped_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is process 1 of a pid namespace, and its parent is process 1 of another one."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    guard, member = ForkGuard(), Member()
    monkeypatch.setattr(guard, "_new_page", lambda: b"\1")
    guard.reset_in_child(member)
    assert not guard.sees_all_forks
    assert in_child(lambda: member.resets) == 1
    assert in_child(lambda: in_child(lambda: member.resets)) == 2
    assert member.resets == 0


def test_a_child_that_no_hook_was_called_in_is_reset_before_it_takes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wiped page, only the pid tells of a fork that bypasses Python."""
    guard, member = ForkGuard(), Member()
    monkeypatch.setattr(guard, "_new_page", lambda: b"\1")
    guard.reset_in_child(member)
    guard._pid = -1
    assert guard.in_one_process(lambda: (guard.generation, member.resets)) == (1, 1)


def test_a_child_whose_earlier_hook_made_an_id_is_reset_once() -> None:
    guard, member = ForkGuard(), Member()
    os.register_at_fork(after_in_child=guard.check)
    guard.reset_in_child(member)
    assert in_child(lambda: member.resets) == 1


def test_a_system_that_accepts_all_advice_is_not_trusted_to_wipe_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class Accepting(mmap.mmap):
        def madvise(self, *_: Any) -> None:
            """Do nothing, as some emulators do."""

    guard = ForkGuard()
    monkeypatch.setattr(mmap, "mmap", Accepting)
    guard.reset_in_child(Member())
    assert not guard.sees_all_forks
    assert guard.is_reset


def test_a_generator_that_only_a_finalizer_still_reached_makes_no_id_of_its_parents_lease() -> None:
    """The collector has removed it from the guard's weak set before the finalizer keeps it."""
    kept: list[SnowflakeGenerator] = []

    class Service:
        def __init__(self) -> None:
            self.ids, self.itself = memory_pool().connect(), self
            self.ids.next_id()

        def __del__(self) -> None:
            kept.append(self.ids)

    Service()
    gc.collect()
    (ids,) = kept
    worker = ids.layout.decode(ids.next_id()).worker

    def next_worker() -> int:
        return ids.layout.decode(ids.next_id()).worker

    assert in_child(next_worker) != worker
    # a child's child, too
    assert in_child(lambda: in_child(next_worker)) != worker


# --- forked processes ------------------------------------------------------------------------------


# a tick of the layout "game" lasts 10 s: parent and child are in the same one
@pytest.mark.parametrize(("how", "layout", "count"), [("os.fork", "default", 1500), ("in C", "game", 10)])
def test_forked_children_claim_worker_ids_of_their_own(server: RedisServer, how: str, layout: str, count: int) -> None:
    program = "tests.snowflake.generator.programs.forked_children"
    made = run(program, server.url, new_pool(server.url, layout=layout), layout, str(count), how).split()
    assert len(made) == 6 * count
    assert len(set(made)) == len(made)


def test_a_child_that_never_makes_an_id_takes_no_worker_id(server: RedisServer) -> None:
    name = new_pool(server.url)
    run("tests.snowflake.generator.programs.child_without_ids", server.url, name)
    assert WorkerPool(server.url, name).workers() == []


def test_a_heartbeat_that_a_child_inherits_ends_there() -> None:
    # as a greenlet of gevent, which a fork copies; a thread does not exist in the child
    guard, beats = ForkGuard(), []

    class Owner:
        def _beat(self) -> float:
            beats.append(guard.generation)
            if len(beats) == 2:
                # forked, as os.fork() in another greenlet would
                guard.recover()
            return 0.0

        def _after_fork(self) -> None:
            pass

    owner = Owner()
    guard.reset_in_child(owner)
    abandoned: list[bool] = []
    heartbeat = Heartbeat(lambda: owner, lambda: abandoned.append(True), guard)
    heartbeat._beat(0.0)
    assert (len(beats), abandoned) == (2, [])


@pytest.mark.parametrize("how", ["rq", "celery", "preload", "configure", "sync", "gevent"])
def test_a_process_that_forks_imports_what_a_claim_needs_unless_its_children_may_patch_it(
    tmp_path: Path, how: str
) -> None:
    if package := {"rq": "rq", "celery": "celery", "sync": "gunicorn", "gevent": "gunicorn"}.get(how):
        pytest.importorskip(package)
    # over TCP: a socket needs less
    with redis_server(tmp_path, "--port", str(port := free_port())):
        new_pool(url := f"redis://localhost:{port}/0", "preloaded")
        imported = run("tests.snowflake.generator.programs.imports_of_a_child", how, url, "preloaded").split()
    if how == "gevent":
        assert {"asyncio", "redis"} <= set(imported)
    else:
        assert imported == []


def test_children_that_are_forked_while_threads_load_the_package_make_ids(tmp_path: Path, server: RedisServer) -> None:
    new_pool(server.url, "storm")
    command = [sys.executable, "-m", "tests.snowflake.generator.programs.forks_while_loading", server.url, "storm"]
    with in_background(command, tmp_path / "log") as process:
        assert process.wait(60) == 0
