"""multiprocessing and concurrent.futures need nothing, however their processes start."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import programs
from tests.support.pools import new_pool
from tests.support.servers import RedisServer

METHODS = ["fork", "spawn", "forkserver"]
PROGRAM = "tests.integrations.programs.multiprocessing_ids"
# made ids, different ones among them, and other processes that hold leases
Run = Callable[..., tuple[int, int, list[int]]]


@pytest.fixture
def run(server: RedisServer) -> Run:
    """Run *work* of the program, whose file is imported by children that are not forked."""

    def run(work: str, method: str, ttl_s: int = 120) -> Any:
        # each spawned child imports everything again
        arguments = (server.url, new_pool(server.url, ttl=ttl_s), method, str(ttl_s), work)
        return tuple(json.loads(programs.run(PROGRAM, *arguments, timeout_s=110)))

    return run


@pytest.mark.parametrize("method", METHODS)
def test_parent_and_children_repeat_no_id_and_children_release_their_worker_ids(run: Run, method: str) -> None:
    made, different, others = run("processes_and_pools", method)
    assert made == different == (33 if method == "fork" else 23) * 110
    assert others == []


def test_children_that_a_pool_terminates_cost_one_ttl_and_no_id(run: Run) -> None:
    assert run("terminated_pool", "fork", ttl_s=2) == (12 * 110, 12 * 110, [])
