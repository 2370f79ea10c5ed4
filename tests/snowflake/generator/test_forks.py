"""Forks of every kind, on a real redis-server: no child makes an id of its parent's."""

import sys
from pathlib import Path

import pytest

from snowredis.process.fork import ForkGuard
from snowredis.snowflake.upkeep.heartbeat import Heartbeat
from snowredis.worker_pool import WorkerPool
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.programs import in_background, run
from tests.support.servers import RedisServer, redis_server


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
