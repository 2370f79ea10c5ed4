"""celery: real workers on a private Redis: warm and cold ends, children that are replaced and killed, task ids."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

pytest.importorskip("celery")

from celery import Celery, chain, group

from snowredis.integrations import celery as integration
from snowredis.process.names import PROCESS
from snowredis.process_generator import effective_settings
from tests.integrations.celery_worker import IDS_PER_TASK, LIMIT_S, POOL, Fleet, environment, eventually, worker


@pytest.fixture
def fleet(own_server: RedisServer, tmp_path: Path) -> Callable[..., Any]:
    return partial(worker, own_server, tmp_path / "worker.log")


def assert_no_id_twice(fleet: Fleet, tasks: int) -> None:
    ids = fleet.ids()
    assert len(ids) >= tasks * IDS_PER_TASK
    assert len(set(ids)) == len(ids)


def test_prefork_children_have_worker_ids_of_their_own_and_release_them_also_if_they_are_killed(fleet: Any) -> None:
    with fleet("--concurrency=2", TTL="60") as running:
        running.send(60)
        running.wait_for(60)
        workers = running.workers()
        # two generators in each child, none in the parent
        assert {worker.pid for worker in workers} == {int(note[0]) for note in running.notes()}
        assert running.process.pid not in {worker.pid for worker in workers}
        assert {worker.label for worker in workers} == {"w@test"}
        killed = int(running.notes()[-1][0])
        os.kill(killed, signal.SIGKILL)
        running.send(30)
        running.wait_for(90)
        eventually(lambda: killed not in {worker.pid for worker in running.workers()}, "a lease released")
        running.end()
        assert_no_id_twice(running, 90)
        assert running.workers() == []
        assert running.process.returncode == 0


def test_a_cold_shutdown_releases_the_worker_ids_too(fleet: Any) -> None:
    with fleet("--concurrency=2") as running:
        running.send(20)
        running.wait_for(20)
        running.send(2, 60)
        # only tasks that the worker knows to run are cut off
        active = running.app.control.inspect(timeout=0.2).active
        eventually(lambda: len((active() or {}).get("w@test", [])) == 2, "two long tasks that run")
        running.end(signal.SIGQUIT)
        assert len(running.notes()) == 20
        assert_no_id_twice(running, 20)
        assert running.workers() == []


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_a_worker_of_one_process_releases_its_worker_ids_at_its_end(fleet: Any, pool: str) -> None:
    if pool == "gevent":
        pytest.importorskip("gevent")
    with fleet(f"--pool={pool}", "--concurrency=4") as running:
        running.send(20)
        running.wait_for(20)
        workers = running.workers()
        assert [worker.pid for worker in workers] == [running.process.pid] * 2
        assert {worker.label for worker in workers} == {"w@test"}
        running.end()
        assert_no_id_twice(running, 20)
        assert running.workers() == []


def test_including_the_module_is_enough_also_where_children_are_spawned(fleet: Any, own_server: RedisServer) -> None:
    from celery.concurrency.prefork import process_destructor

    settings = {"SETUP": "0", "SNOWREDIS_URL": own_server.url, "SNOWREDIS_POOL": POOL, "SNOWREDIS_TTL": "120"}
    if "exitcode" in process_destructor.__code__.co_varnames:
        # an older celery starts children by fork only
        settings["START"] = "spawn"
    with fleet("--concurrency=1", "--include=snowredis.integrations.celery", **settings) as running:
        running.send(20)
        running.wait_for(20)
        assert {worker.label for worker in running.workers()} == {"w@test"}
        running.end()
        assert_no_id_twice(running, 20)
        assert running.workers() == []


def test_the_broker_takes_tasks_whose_ids_are_snowflakes(fleet: Any, own_server: RedisServer) -> None:
    with fleet("--pool=solo") as running:
        done = warm.run(
            [sys.executable, "-m", "tests.integrations.programs.send_celery_task"],
            cwd=ROOT,
            env=environment(own_server, TASK_IDS="1"),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        sent, seen, made = done.stdout.split()
        assert sent == seen
        assert 0 < int(sent) < int(made)
        running.end()
    assert running.workers() == []


# --- in this process -------------------------------------------------------------------------------


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(PROCESS, "label", "")
    yield
    snowredis.close()
    snowredis.configure()


@pytest.fixture
def app(unconfigured: None) -> Any:
    made = Celery(broker="memory://", set_as_current=False)
    integration.setup(made, task_ids=True, url=snowredis.testing.memory_pool())

    @made.task(name="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    return made


def is_snowflake(task_id: str) -> bool:
    return task_id.isdecimal() and snowredis.Layout().decode(int(task_id)).worker == 0


def test_every_way_to_send_a_task_gives_it_a_snowflake(app: Any) -> None:
    add = app.tasks["add"]
    sent = [
        add.delay(1, 2),
        add.apply_async((1, 2), countdown=5),
        add.s(1, 2).delay(),
        app.send_task("add", (1, 2)),
        app.send_task("elsewhere"),
    ]
    ids = [result.id for result in sent]
    assert all(map(is_snowflake, ids))
    assert ids == sorted(set(ids))


def test_a_task_id_that_is_given_stays(app: Any) -> None:
    assert app.tasks["add"].apply_async((1, 2), task_id="mine").id == "mine"
    assert app.send_task("add", (1, 2), {}, None, None, "mine").id == "mine"


def test_tasks_of_chains_and_groups_keep_the_ids_of_celery(app: Any) -> None:
    add = app.tasks["add"]
    chained = chain(add.s(1, 2), add.s(3), app=app).apply_async()
    grouped = group([add.s(1, 2), add.s(3, 4)], app=app).apply_async()
    assert not any(map(is_snowflake, [chained.id, chained.parent.id, *(r.id for r in grouped.results)]))


def test_a_tracer_that_replaces_the_method_later_still_sees_every_task(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = Celery.send_task

    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        seen.append(result.id)
        return result

    monkeypatch.setattr(Celery, "send_task", traced)
    sent = app.tasks["add"].delay(1, 2).id
    assert seen == [sent]
    assert is_snowflake(sent)


def test_without_task_ids_the_app_is_left_as_it_is(unconfigured: None) -> None:
    app = Celery(broker="memory://", set_as_current=False)
    before = effective_settings()
    integration.setup(app)
    assert "send_task" not in vars(app)
    assert effective_settings() == before


def test_a_setting_that_does_not_exist_is_refused(unconfigured: None) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'pol'"):
        integration.setup(Celery(set_as_current=False), pol="orders")  # type: ignore[call-arg]


def test_a_task_is_not_sent_without_an_id(unconfigured: None) -> None:
    app = Celery(broker="memory://", set_as_current=False)
    integration.setup(app, task_ids=True, url="unix:///nowhere/redis.sock")
    with pytest.raises(snowredis.StoreUnavailable):
        app.send_task("add")


def test_a_label_that_somebody_gave_stays(unconfigured: None) -> None:
    integration._label("celery@first")
    integration._label("celery@second")
    assert PROCESS.label == "celery@first"
    # celery 5.4 names nobody to its children
    integration._label(None)
    assert PROCESS.label == "celery@first"
