"""min_replicas: no change counts before enough replicas have it; refused in bounded time if they are too few."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support.ha import Node, Replicated, eventually, running
from tests.support.pools import new_pool


@pytest.fixture
def one_stopped(replicated: Replicated) -> Iterator[None]:
    replicated.replicas[0].kill(signal.SIGSTOP)
    yield
    replicated.replicas[0].kill(signal.SIGCONT)


@pytest.mark.parametrize("enough", [1, 2, "all"])
def test_claims_and_renewals_work_with_enough_replicas(replicated: Replicated, enough: Any) -> None:
    name = new_pool(replicated.master.url)
    with snowredis.connect(replicated.master.url, pool=name, min_replicas=enough) as ids:
        ids.claim()
        for replica in replicated.replicas[: 2 if enough == "all" else enough]:
            assert eventually(partial(replica.ask, "EXISTS", f"snowredis:{{{name}}}"))
        ids._beat()
        # the heartbeat's own thread may have renewed it, too
        assert ids.claim().renewals >= 1


@pytest.mark.parametrize("needed", [2, "all"])
def test_a_replica_that_has_stopped_is_missed_in_bounded_time(
    replicated: Replicated, one_stopped: None, needed: Any
) -> None:
    name = new_pool(replicated.master.url)
    ids = snowredis.connect(replicated.master.url, pool=name, min_replicas=needed)
    with pytest.raises(snowredis.StoreUnavailable, match=f"1 of .*2 replicas that min_replicas={needed} requires"):
        ids.next_id()
    with snowredis.connect(replicated.master.url, pool=name, min_replicas=1) as others:
        # the claim that was refused has a worker id already, and is repeated with the same token
        assert others.claim().worker == 1
    replicated.replicas[0].kill(signal.SIGCONT)
    assert ids.claim().worker == 0
    ids.close()


def test_a_replica_that_stops_later_costs_renewals_and_no_ids_before_the_reservation_ends(
    replicated: Replicated,
) -> None:
    name = new_pool(replicated.master.url)
    with snowredis.connect(replicated.master.url, pool=name, min_replicas="all") as ids:
        ids.claim()
        replicated.replicas[0].kill(signal.SIGSTOP)
        try:
            assert ids._beat() > 0
            assert ids.claim().renewals == 0
            ids.next_ids(100)
        finally:
            replicated.replicas[0].kill(signal.SIGCONT)
        ids._beat()
        # the heartbeat's own thread may have renewed it, too
        assert ids.claim().renewals >= 1


def test_a_server_without_replicas_is_refused(tmp_path: Path) -> None:
    alone = Node(tmp_path)
    with running([alone]):
        name = new_pool(alone.url)
        many: list[Any] = [1, "all"]
        for needed in many:
            with pytest.raises(snowredis.StoreUnavailable, match=r"0 of .*1 replicas"):
                snowredis.connect(alone.url, pool=name, min_replicas=needed).next_id()


@pytest.mark.parametrize("wrong", [-1, 101, True, 1.0, "most", None])
def test_what_is_no_number_of_replicas_is_refused(wrong: object) -> None:
    with pytest.raises(snowredis.ConfigError, match="min_replicas must be 0 to 100, or 'all'"):
        snowredis.connect("redis://h", min_replicas=wrong)  # type: ignore[arg-type]


def test_a_pool_that_can_have_no_replicas_is_refused() -> None:
    for url in ("embedded://", snowredis.testing.memory_pool()):
        with pytest.raises(snowredis.ConfigError, match="needs a Redis with replicas"):
            snowredis.connect(url, min_replicas=1)
