"""Whois of ids that real processes made under real faults, compared with what they recorded."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.chaos.faults import FAULTS
from tests.lab.chaos.report import Plan
from tests.monitor.chaos_whois import run
from tests.support.servers import PROGRAM

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH"),
    pytest.mark.timeout(240),
]
LAYOUT = "41/0/2/4/16"
# faults that do not affect Redis and its history
MILD = [fault for fault in FAULTS if fault.target == "worker"]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """With room for the path of a socket."""
    path = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_the_right_process_is_named_after_kills_forks_pauses_and_clock_steps(short_path: Path) -> None:
    plan = Plan(seed=3, processes=2, faults=14, seconds=3, ttl_s=1.5, truce_every=14, layout=LAYOUT, rest_s=0.05)
    score = run(plan, short_path, 1_000, kinds=MILD)
    assert score.total >= 1_000
    assert (score.wrong, score.wrong_probable) == ([], [])
    # a clock that is hours behind makes ids that are older than the pool: that cannot be known
    assert score.answers["certain"] > 0.5 * score.total


def test_a_history_that_redis_lost_makes_no_answer_wrong(short_path: Path) -> None:
    plan = Plan(seed=4, processes=2, faults=20, seconds=4, ttl_s=1.5, truce_every=20, layout=LAYOUT, rest_s=0.05)
    score = run(plan, short_path, 1_000, kinds=FAULTS)
    assert score.total >= 1_000
    assert score.wrong == []
    assert score.answers["certain"] > 0
