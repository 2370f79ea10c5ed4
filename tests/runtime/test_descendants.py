"""Leases of descendants that die are given back by the process that forked first, if it watches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import snowredis
from tests.support.programs import start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def held_for_children(descriptors: Path) -> list[str]:
    """Return the names of the memory and the pidfds of children."""
    names = [str(each.readlink()) for each in descriptors.iterdir()]
    return [name for name in names if "memfd:snowredis" in name or "pidfd" in name]


def test_every_death_of_a_descendant_gives_its_worker_id_back(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.runtime.programs.dying_children", server.url, name)
    assert process.stdout is not None
    killed = int(process.stdout.readline() or 0)
    eventually(lambda: pool.workers() == [], "no lease")
    descriptors = Path(f"/proc/{process.pid}/fd")
    assert list(descriptors.iterdir())
    eventually(lambda: not held_for_children(descriptors), "closed descriptors")
    process.communicate("\n", timeout=20)
    info = pool.info()
    # those of multiprocessing's pool end in order, or by a signal
    assert killed <= info.reclaimed <= killed + 4
    assert info.expired == 0


def test_a_redis_that_does_not_reply_delays_no_fork_and_the_end_of_the_parent_by_little(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.runtime.programs.deaths_while_redis_is_away", server.url, name)
    assert process.stdout is not None
    assert process.stdout.readline() == "killed\n"
    eventually(lambda: pool.workers() == [], "no lease")
    assert pool.info().reclaimed == 3
    output, errors = process.communicate("\n", timeout=20)
    assert (output, errors, process.returncode) == ("away again\nended\n", "", 0)
