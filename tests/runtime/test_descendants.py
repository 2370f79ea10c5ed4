"""Leases of descendants that die are given back by the process that forked first, without a line in the program."""

from __future__ import annotations

from collections.abc import Callable

import snowredis
from tests.support.programs import start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def test_every_death_of_a_descendant_gives_its_worker_id_back(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    pool = snowredis.WorkerPool(server.url, name)
    process = start("tests.runtime.programs.dying_children", server.url, name)
    assert process.stdout is not None
    killed = int(process.stdout.readline() or 0)
    eventually(lambda: pool.workers() == [], "no lease")
    process.communicate("\n", timeout=20)
    info = pool.info()
    # those of multiprocessing's pool end in order, or by a signal
    assert killed <= info.reclaimed <= killed + 4
    assert info.expired == 0
