"""gunicorn: real arbiters on a private Redis: hooks, gevent, and a Redis that is away; test_hosts.py has kills."""

import json
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gunicorn")

from gunicorn.config import Config

from snowredis.integrations import gunicorn as hooks
from tests.integrations.hosts import CONSTANTS, HOOKS, LIFESPAN, POOL, eventually, gunicorn
from tests.support.pools import new_pool
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

FAILED = "failed; gunicorn goes on"


@pytest.fixture
def serve(server: RedisServer, tmp_path: Path) -> Callable[..., Any]:
    server.client().flushdb()
    return partial(gunicorn, server, tmp_path)


def test_greenlets_wait_for_a_claim_that_another_one_makes(serve: Any, server: RedisServer) -> None:
    pytest.importorskip("gevent")
    with serve("--worker-class=gevent") as running:
        running.wait_until_ready(1)
        assert running.ask("/again/")["worker"] is None
        server.client().client_pause(300, all=True)
        with ThreadPoolExecutor(20) as threads:
            answers = threads.map(running.request, ["/ids/5"] * 20)
        assert [status for status, _ in answers] == [200] * 20


def test_gevent_may_be_patched_in_the_configuration_and_greenlets_renew_leases(
    own_server: RedisServer, tmp_path: Path
) -> None:
    pytest.importorskip("gevent")
    conf = "from gevent import monkey\nmonkey.patch_all()\nfrom snowredis.integrations.gunicorn import *\n"
    options = ("--worker-class=gevent", "--workers=2", "--preload")
    with gunicorn(own_server, tmp_path, *options, conf=conf, constants=CONSTANTS | {"ttl": 3.0}) as running:
        running.wait_until_ready(2)
        eventually(lambda: running.ask("/ids/5")["renewals"] >= 3, "renewals")
        assert running.end() == 0
        assert running.workers() == []
        assert "MonkeyPatchWarning" not in running.log.read_text()


def test_a_worker_that_is_killed_while_redis_is_away_is_replaced_at_once(
    own_server: RedisServer, tmp_path: Path
) -> None:
    with gunicorn(own_server, tmp_path, "--workers=2", "--timeout=4") as running:
        first = running.wait_until_ready(2)
        killed = first.pop()
        own_server.kill(signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        answers: set[int] = set()

        def somebody_new() -> bool:
            answers.add(running.ask("/pid/")["pid"])
            return bool(answers - first - {killed})

        eventually(somebody_new, "a new worker")
        assert killed not in answers
        own_server.kill(signal.SIGCONT)
        # long before the end of the lease of the killed one
        eventually(lambda: running.ask() and running.holders() == running.processes(), "leases of the living only")
        assert killed not in running.holders()


@pytest.mark.parametrize("moment", ["redis is away", "the pool is full"])
def test_one_more_worker_that_gets_no_worker_id_serves_and_ends_nothing(
    own_server: RedisServer, tmp_path: Path, moment: str
) -> None:
    pytest.importorskip("uvicorn_worker")
    layout = "41/0/2/1/19" if moment == "the pool is full" else "41/0/2/10/10"
    constants: dict[str, Any] = {"ttl": 3.0, "layout": layout, "outage_reserve": 86_400.0}
    options = ("--workers=2", "--worker-class=uvicorn_worker.UvicornWorker")
    # the hooks and lifespan() wait for the same worker id, once
    conf = HOOKS if moment == "redis is away" else ""
    with gunicorn(own_server, tmp_path, *options, app=LIFESPAN, conf=conf, constants=constants) as running:
        first = running.wait_until_ready(2)
        if moment == "redis is away":
            own_server.kill()
        running.process.send_signal(signal.SIGTTIN)
        made: set[int] = set()
        served: set[int] = set()

        def a_third_one_serves() -> bool:
            # what needs no id works in every worker; a client that is told to try again gets an id, of the others
            status, body = running.request("/pid")
            assert status == 200
            served.add(json.loads(body)["pid"])
            for _ in range(100):
                status, body = running.request("/id")
                if status == 200:
                    break
                assert status == 503, body
            assert json.loads(body)["pid"] in first
            made.add(json.loads(body)["id"])
            return len(served) == 3

        eventually(a_third_one_serves, "a third worker")
        assert first < running.processes()
        (third,) = served - first
        assert running.log.read_text().count("starts without a worker id") == 1
        if moment == "redis is away":
            own_server.start()
            new_pool(own_server.url, POOL, **constants)
        else:
            running.process.send_signal(signal.SIGTTOU)
        # without a request that asks for an id; after the floor, if those that live come to the new pool first
        eventually(lambda: third in running.holders(), "a worker id of the third")
        assert made
        assert running.end() == 0


def test_hooks_of_ones_own_run_too_and_an_error_in_one_keeps_no_lease(serve: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    conf = (ROOT / "tests/integrations/programs/gunicorn_hooks_of_ones_own.py").read_text()
    with serve(conf=conf, HOOK_NOTES=str(notes)) as running:
        (killed,) = running.wait_until_ready(1)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in running.holders(), "a lease released")
        running.wait_until_ready(1)
        assert running.end() == 0
        assert running.workers() == []
        assert "ValueError: mine" in running.log.read_text()
    lines = notes.read_text().split()
    assert sorted(lines) == ["child_exit"] * 2 + ["post_worker_init"] * 2 + ["worker_exit"]


def test_hooks_may_come_with_a_reload(serve: Any, tmp_path: Path) -> None:
    with serve(conf="") as running:
        eventually(running.processes, "a worker")
        (first,) = running.processes()
        assert not running.ask()["held"]
        (tmp_path / "conf.py").write_text("from snowredis.integrations.gunicorn import *\n")
        running.process.send_signal(signal.SIGHUP)
        eventually(lambda: first not in running.processes(), "a reload")
        running.wait_until_ready(1)
        assert running.ask()["held"]
        assert running.end() == 0
        assert FAILED not in running.log.read_text()


# --- in this process -------------------------------------------------------------------------------


def test_the_module_itself_is_a_configuration() -> None:
    # gunicorn --config python:snowredis.integrations.gunicorn takes every global that is called as a setting is
    assert set(vars(hooks)) & set(Config().settings) == set(hooks.__all__)
    for name in hooks.__all__:
        Config().set(name, getattr(hooks, name))


def test_no_hook_raises(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # every generator of this process would claim
    monkeypatch.delattr(hooks, "claim_all")
    for name in hooks.__all__:
        caplog.clear()
        getattr(hooks, name)(object())
        assert f"{name}() {FAILED}" in caplog.text
    hooks.post_worker_init(SimpleNamespace(log=logging.getLogger("gunicorn.error")))
    assert caplog.records[-1].name == "gunicorn.error"
