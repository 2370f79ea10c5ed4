"""`gameday`: the advice, and a trial with a Redis that loses its data."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.commands.gameday import Observed, advise
from tests.support import warm
from tests.support.servers import RedisServer

NOTHING_LOST, LOST = Observed(1000, 0, 0.0, 3.0, [], 0), Observed(1000, 50, 9.0, 3.0, [], 0)


@pytest.mark.parametrize(
    ("seen", "rest", "settings"),
    [
        (NOTHING_LOST, {"noticed": False}, {"durability": "detect"}),
        (LOST, {"noticed": True}, {"durability": "detect"}),
        # a server that shows nothing
        (LOST, {"noticed": False}, {"durability": "none"}),
        (NOTHING_LOST, {"noticed": False, "unidentified": "no run_id"}, {"durability": "none"}),
        # a failover: a deposed master may have replied for as long as writes were lost
        (
            LOST._replace(identities=[("a", "b"), ("c", "d")], replicas=1),
            {"noticed": True},
            {"durability": "detect", "failover_slack": 22, "min_replicas": "all"},
        ),
        (
            NOTHING_LOST._replace(identities=[("a", "b"), ("c", "d")], replicas=2),
            {"noticed": True},
            {"durability": "detect", "failover_slack": 18},
        ),
    ],
)
def test_the_settings_follow_from_what_was_seen(seen: Observed, rest: dict[str, Any], settings: dict[str, Any]) -> None:
    assert advise(seen, **{"unidentified": "", **rest})[0] == settings


def gameday(url: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "snowredis", "gameday", url, "--ttl", "2", "--workers", "2", *options]
    pipe = subprocess.PIPE
    return warm.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_restart_without_data_loses_writes_and_no_id_is_repeated(own_server: RedisServer, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    trial = gameday(own_server.url, "--json", str(result))
    assert trial.stdout is not None
    for line in trial.stdout:
        if "Press Enter" in line:
            break
    time.sleep(1)
    own_server.kill()
    own_server.start()
    out, err = trial.communicate("\n", timeout=60)
    assert trial.returncode == 0, err
    found = json.loads(result.read_text())
    assert found["writes"]["lost"] > 0
    assert found["noticed"]
    assert found["ids"]["repeated"] == 0 < found["ids"]["ids"]
    assert found["settings"] == {"durability": "detect"}
    assert "use                  durability='detect'" in out
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
