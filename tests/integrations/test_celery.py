"""celery: a cold shutdown, the broker, and task ids; test_hosts.py has all kinds of workers."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support.servers import RedisServer

pytest.importorskip("celery")

from celery import Celery, chain, group

from snowredis.integrations import celery as integration
from snowredis.process.names import PROCESS
from snowredis.process_generator import effective_settings
from tests.integrations.hosts import CONSTANTS, POOL, broker, celery_command, eventually, run_host

MAKE = "tests.integrations.celery_app.make"


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(PROCESS, "label", "")
    yield
    snowredis.close()
    snowredis.configure()


def test_a_cold_shutdown_releases_the_worker_ids_too(own_server: RedisServer, tmp_path: Path) -> None:
    sender = Celery(broker=broker(own_server), set_as_current=False)
    with run_host(own_server, tmp_path, celery_command("--concurrency=2")) as running:
        for seconds in [0] * 20 + [60] * 2:
            sender.send_task(MAKE, (seconds,))
        # only tasks that the worker knows to run are cut off
        active = sender.control.inspect(timeout=0.2).active
        running.wait_for_notes(20)
        eventually(lambda: len((active() or {}).get("w@test", [])) == 2, "two long tasks that run")
        running.end(signal.SIGQUIT)
        assert len(running.notes()) == 20
        assert running.workers() == []


def test_the_broker_takes_tasks_whose_ids_are_snowflakes(
    own_server: RedisServer, tmp_path: Path, unconfigured: None
) -> None:
    sender = Celery(broker=broker(own_server), set_as_current=False)
    integration.setup(sender, task_ids=True, url=own_server.url, pool=POOL, **CONSTANTS)
    with run_host(
        own_server, tmp_path, celery_command("--pool=solo", "--beat", f"--schedule={tmp_path}/beat")
    ) as running:
        sent = sender.send_task(MAKE).id
        running.wait_for_notes(1)
        eventually(lambda: len(running.workers()) == 4, "worker ids of the sender, the worker (two) and its beat")
        ((_, made, seen),) = running.notes()
        assert sent == seen
        assert 0 < int(sent) < min(made)
        running.end()
        snowredis.close()
        assert running.workers() == []


# --- in this process -------------------------------------------------------------------------------


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
