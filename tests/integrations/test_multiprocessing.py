"""multiprocessing and concurrent.futures need nothing, however their processes start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import snowredis
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.warm import FORKS_WITH_THREADS

METHODS = ["fork", "spawn", "forkserver"]
PROGRAM = ROOT / "tests/integrations/programs/multiprocessing_ids.py"


@pytest.fixture
def program(server: RedisServer, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run *work* of the program, whose file is imported by children that are not forked."""

    def run(work: str, method: str, ttl_s: int = 120) -> subprocess.CompletedProcess[str]:
        config = PoolConfig(name=tmp_path.name[-60:], ttl_ms=ttl_s * 1000)
        snowredis.WorkerPool(server.url, config.name).create(config)
        return warm.run(
            [sys.executable, "-W", FORKS_WITH_THREADS, str(PROGRAM)]
            + [server.url, config.name, method, str(ttl_s), work],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            # each spawned child imports everything again
            timeout=110,
        )

    return run


@pytest.mark.parametrize("method", METHODS)
def test_parent_and_children_repeat_no_id_and_children_release_their_worker_ids(
    program: Callable[..., subprocess.CompletedProcess[str]], method: str
) -> None:
    done = program("processes_and_pools", method)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    made, different, others = json.loads(done.stdout)
    assert made == different == (33 if method == "fork" else 23) * 110
    assert others == []


def test_a_generator_as_an_argument_is_refused_with_what_to_do_instead(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program("generator_as_an_argument", "spawn")
    assert done.returncode == 1
    assert "TypeError: a snowredis generator cannot be pickled or copied" in done.stderr
    assert "Call snowredis.connect() in each process" in done.stderr


def test_a_forked_process_may_be_given_a_generator(program: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = program("given_generator", "fork")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [200, 200, []]


def test_children_that_a_pool_terminates_cost_one_ttl_and_no_id(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program("terminated_pool", "fork", ttl_s=2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [12 * 110, 12 * 110, []]
