"""A process that forks gives back the leases of its descendants that die, without a line in the program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import snowredis
from tests.support.programs import start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def test_every_death_of_a_descendant_gives_its_worker_id_back(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.reclaim.programs.dying_children", server.url, name)
    assert process.stdout is not None
    killed = int(process.stdout.readline() or 0)
    eventually(lambda: pool.workers() == [], "no lease")
    _, errors = process.communicate("\n", timeout=20)
    assert errors == ""
    info = pool.info()
    # those of multiprocessing's pool end in order, or by a signal
    assert killed <= info.reclaimed <= killed + 4
    assert info.expired == 0


@pytest.mark.parametrize("ends", ["", "1"], ids=["the thread waits", "the thread ends before each fork"])
def test_a_strange_parent_is_not_disturbed(
    server: RedisServer, new_pool: Callable[..., str], ends: str
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.reclaim.programs.strange_parent", server.url, name, ends)
    assert process.stdout is not None
    killed = int(process.stdout.readline() or 0)
    eventually(lambda: pool.workers() == [], "no lease")
    _, errors = process.communicate("\n", timeout=20)
    assert (errors, process.returncode) == ("", 0)
    assert (pool.info().reclaimed, pool.info().expired) == (killed, 0)


def test_a_redis_that_does_not_reply_delays_no_fork_and_the_end_of_the_parent_by_little(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.reclaim.programs.deaths_while_redis_is_away", server.url, name)
    assert process.stdout is not None
    assert process.stdout.readline() == "killed\n"
    eventually(lambda: pool.workers() == [], "no lease")
    assert pool.info().reclaimed == 3
    output, errors = process.communicate("\n", timeout=20)
    assert (output, errors, process.returncode) == ("away again\nended\n", "", 0)


@pytest.mark.parametrize("ends", ["", "1"], ids=["the thread waits", "the thread ends before each fork"])
@pytest.mark.parametrize(("raised", "seen"), [("ctrl-c", "KeyboardInterrupt()"), ("3", "SystemExit(3)")])
def test_what_a_signal_handler_raises_while_a_fork_waits_is_not_lost(
    server: RedisServer, new_pool: Callable[..., str], ends: str, raised: str, seen: str
) -> None:
    process = start("tests.reclaim.programs.interrupted_fork", server.url, new_pool(), ends, raised)
    output, errors = process.communicate(timeout=20)
    assert (errors, output.splitlines()) == ("", ["in the fork", seen])
