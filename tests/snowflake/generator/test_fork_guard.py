"""The fork guard where the system helps less: no wiped page, a page that is not wiped, the pid of the parent."""

import gc
import mmap
import os
from collections.abc import Callable
from typing import Any

import pytest

from snowredis.process.fork import ForkGuard
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.testing import memory_pool


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
