"""`gameday`: the advice, and a trial with a Redis that loses its data."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from snowredis.cli.commands.gameday import Trial
from tests.support import warm
from tests.support.servers import RedisServer

NOTHING_LOST = Trial(1000, 0, 0, 3000, identities=1, replicas=0, noticed=False, unidentified="")
LOST = replace(NOTHING_LOST, lost=50, lost_for_ms=9000, noticed=True)


@pytest.mark.parametrize(
    ("trial", "settings"),
    [
        (NOTHING_LOST, {"durability": "detect"}),
        (LOST, {"durability": "detect"}),
        # a server that shows nothing
        (replace(LOST, noticed=False), {"durability": "none"}),
        (replace(NOTHING_LOST, unidentified="no run_id"), {"durability": "none"}),
        # a failover: a deposed master may have replied for as long as writes were lost
        (
            replace(LOST, identities=2, replicas=1),
            {"durability": "detect", "failover_slack": 22, "min_replicas": "all"},
        ),
        (replace(NOTHING_LOST, noticed=True, identities=2, replicas=2), {"durability": "detect", "failover_slack": 18}),
    ],
)
def test_the_settings_follow_from_what_was_seen(trial: Trial, settings: dict[str, Any]) -> None:
    assert trial.settings == settings


def gameday(url: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "snowredis", "gameday", url, "--ttl", "2", "--workers", "2", *options]
    pipe = subprocess.PIPE
    return warm.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_restart_without_data_loses_writes_and_no_id_is_repeated(own_server: RedisServer) -> None:
    trial = gameday(own_server.url, "--json")
    assert trial.stderr is not None
    for line in trial.stderr:
        if "Press Enter" in line:
            break
    time.sleep(1)
    own_server.kill()
    own_server.start()
    out, err = trial.communicate("\n", timeout=60)
    assert trial.returncode == 0, err
    found = json.loads(out)
    assert found["lost"] > 0
    assert found["noticed"]
    assert found["repeated"] == 0 < found["ids"]
    assert found["settings"] == {"durability": "detect"}
    assert own_server.client().dbsize() == 0


def test_a_trial_that_is_interrupted_leaves_nothing_behind(own_server: RedisServer) -> None:
    trial = gameday(own_server.url)
    assert trial.stdout is not None
    for line in trial.stdout:
        if "Press Enter" in line:
            break
    trial.send_signal(signal.SIGTERM)
    assert trial.wait(30) == 130
    assert own_server.client().dbsize() == 0


def test_the_error_of_a_trial_is_shown_though_its_keys_cannot_be_deleted(own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.config_set("min-replicas-to-write", 1)
    trial = gameday(own_server.url, "--do", "true")
    _, err = trial.communicate(timeout=60)
    assert trial.returncode == 4
    assert err.startswith("its keys may be left, snowredis:{gameday-")
    assert "error: Redis at" in err
