"""Servers that replace each other in a failover, and pools on them that were created as new."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.worker_pool import WorkerPool
from tests.support.ha import Cluster, Replicated, Sentinels, cluster, running, sentinels

_numbers = itertools.count(1)


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


@pytest.fixture
def new_pool() -> Callable[..., str]:
    """Create a pool; returns its name."""

    def make(url: Any, *, name: str = "", layout: Layout | None = None, **constants: int) -> str:
        name = name or f"pool{next(_numbers)}"
        config = PoolConfig(name=name, layout=layout or Layout(), **constants)  # type: ignore[arg-type]
        pool = WorkerPool(url, name)
        assert pool.create(config)
        pool.close()
        return name

    return make
