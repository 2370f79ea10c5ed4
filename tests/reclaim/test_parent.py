"""A process that forks gives back the leases of its descendants that die, without a line in the program."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import snowredis
from snowredis.snowflake import parent
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


def test_settings_that_are_set_again_are_used_and_no_store_of_an_old_pool_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Any] = []
    swept: list[Any] = []

    def open_store() -> Any:
        store = SimpleNamespace(config=SimpleNamespace(registry=""), open=True)
        store.close = lambda: setattr(store, "open", False)
        opened.append(store)
        return store

    def sweep(store: Any, most: int) -> int:
        swept.append(store)
        return 0

    monkeypatch.setattr(parent, "left_by_the_dead", lambda: {"pool"})
    monkeypatch.setattr(parent, "has_others", lambda: True)
    monkeypatch.setattr(parent, "pool_name", lambda _: "pool")
    monkeypatch.setattr(parent, "sweep", sweep)
    watch = parent.ParentWatch()
    # no hooks of forks
    watch._registered = True
    for _ in range(2):
        # the same function, which reads other settings than before
        watch.add("settings", lambda: parent.ANY, open_store)
        watch._look()
        watch._look()
    assert swept == [opened[0], opened[0], opened[1], opened[1]]
    for number in range(3 * parent.MOST_POOLS):
        watch.add(str(number), lambda: "pool", open_store)
        watch._look()
    assert sum(store.open for store in opened) == parent.MOST_POOLS == len(watch.pools)
