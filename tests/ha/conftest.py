"""Servers that replace each other in a failover."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ha import Cluster, Replicated, Sentinels, cluster, running, sentinels


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Sentinels]:
    """A master, two replicas and three Sentinels, which one test may kill."""
    with sentinels(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    made = Replicated(tmp_path_factory.mktemp("r"))
    with running(made.nodes):
        made.wait_for_replicas()
        yield made


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("c")) as made:
        yield made
