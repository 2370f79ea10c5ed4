"""Lists of independent servers that differ between processes; servers that were not checked or hold another's pool."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.monitor.doctor import diagnose
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, StoredField, pool_keys
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import ClaimReply, Renewed, Seen
from snowredis.snowflake.sharded_store import ShardedStore
from tests.ha.test_sharded_store import CONFIG, Stage, stage
from tests.support.ha import Node, eventually
from tests.support.holder import Holder

# --- what is made while a server is away -----------------------------------------------------------


def test_no_pool_is_made_while_a_server_that_was_never_seen_is_away(two: list[Node]) -> None:
    urls = [node.url for node in two]
    options: dict[str, Any] = {"pool": "p", "ttl": 0.3}
    two[1].kill()
    # else, with the other server away, a process with the other order would be given the same worker ids
    with pytest.raises(StoreUnavailable, match="created only after all servers were checked"):
        snowredis.connect(urls, **options).next_id()
    assert two[0].ask("EXISTS", pool_keys("p")[0]) == 0
    two[1].start()
    with snowredis.connect(urls, **options) as ids:
        eventually(lambda: made(ids), what="an id")
        with pytest.raises(LayoutMismatch, match="place in the list of servers"):
            snowredis.connect(urls[::-1], **options).next_id()


def made(ids: snowredis.SnowflakeGenerator) -> bool:
    with contextlib.suppress(snowredis.SnowredisError):
        ids.next_id()
        return True
    return False


def test_a_wiped_server_is_not_used_by_who_has_not_seen_all() -> None:
    on = stage(3)
    on.servers[0].wipe()
    on.servers[2].away = True
    assert on.holder().claim().worker == 1
    on.servers[1].away = True
    on.store = ShardedStore(on.servers, CONFIG)
    with pytest.raises(StoreUnavailable, match="b, c did not reply"):
        on.holder().ask_claim()


# --- servers that were not seen --------------------------------------------------------------------


def test_a_claim_warns_of_a_server_that_was_not_seen(caplog: pytest.LogCaptureFixture) -> None:
    on = stage()
    with caplog.at_level(logging.WARNING):
        on.holder().claim()
        assert not caplog.messages
        on = stage()
        on.servers[0].away = True
        on.holder().claim()
    (message,) = caplog.messages
    assert "before a was checked" in message
    assert "the same list in the same order" in message


def unseen_after_claim(count: int = 2) -> tuple[Stage, Holder]:
    """Return a holder on the last server that has not checked the others."""
    on = stage(count)
    for server in on.servers[:-1]:
        server.away = True
    holder = on.holder().claim()
    for server in on.servers[:-1]:
        server.away = False
    return on, holder


def test_a_renewal_finds_that_a_server_is_of_another_list() -> None:
    on, holder = unseen_after_claim()
    foreign = {"signature": replace(CONFIG, share=(1, 2)).signature, "incarnation": "of its own"}
    on.servers[0].stored = foreign.__getitem__  # type: ignore[assignment]
    with pytest.raises(LayoutMismatch, match="place in the list of servers is 2 of 2 in the pool"):
        holder.ask_renew()


def test_renewals_look_at_one_unseen_server_each_until_all_were_seen() -> None:
    on, holder = unseen_after_claim(3)
    asked: list[int] = []
    for index, server in enumerate(on.servers):

        def look(field: StoredField, index: int = index, usual: Callable[[StoredField], str] = server.stored) -> str:
            asked.append(index)
            return usual(field)

        server.stored = look  # type: ignore[method-assign]
    on.servers[0].away = True
    for _ in range(4):
        assert isinstance(holder.ask_renew(), Renewed)
    assert len(asked) <= 4
    assert set(asked) == {0, 1}
    on.servers[0].away = False
    for _ in range(2):
        holder.ask_renew()
    before = len(asked)
    holder.ask_renew()
    assert len(asked) == before


# --- two settings at one instant -------------------------------------------------------------------


class AtOnce(RedisStore):
    """Delays its process' first claim until another process claims, too."""

    barriers: list[threading.Barrier]

    def claim(self, request: ClaimRequest, seen: Seen) -> ClaimReply:
        if self.barriers:
            self.barriers.pop().wait(10)
        return super().claim(request, seen)


@pytest.mark.parametrize("orders", [[(0, 1), (0, 1)], [(0, 1), (1, 0)]], ids=["other ttl", "other order"])
def test_of_two_settings_at_one_instant_one_wins(two: list[Node], orders: list[tuple[int, int]]) -> None:
    barrier = threading.Barrier(2)
    processes = []
    for number, order in enumerate(orders):
        ttl_ms = 300 + number if orders[0] == orders[1] else 300
        config = PoolConfig(name="p", ttl_ms=ttl_ms)
        servers: list[Any] = []
        barriers = [barrier]
        for place, index in enumerate(order):
            server: Any = AtOnce(two[index].url, replace(config, share=(place, 2)))
            server.barriers = barriers
            servers.append(server)
        # each would begin with another server
        first = number if orders[0] == orders[1] else 0
        processes.append(ShardedStore(servers, config, choose=lambda _, first=first: first))  # type: ignore[misc]
    holders = [Holder(process, lambda: 1_800_000_000_000) for process in processes]

    def begin(holder: Holder) -> None:
        with contextlib.suppress(LayoutMismatch, StoreUnavailable):
            holder.ask_claim()

    threads = [threading.Thread(target=begin, args=(holder,)) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = []
    for holder in holders:
        try:
            outcomes.append(type(holder.ask_claim()).__name__)
        except LayoutMismatch:
            outcomes.append("refused")
    assert sorted(outcomes) in (["Settling", "refused"], ["Granted", "refused"])
    for process in processes:
        process.close()


# --- a server with another's pool ------------------------------------------------------------------


def test_a_server_with_another_ones_snapshot_is_not_used_and_stops_nobody(
    two: list[Node], new_pool: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls)
    with snowredis.connect(urls, pool=name) as before:
        before.next_id()
        key = pool_keys(name)[0]
        two[1].ask("DEL", key)
        two[1].ask("HSET", key, *(text for pair in two[0].ask("HGETALL", key).items() for text in pair))
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                with snowredis.connect(urls, pool=name) as ids:
                    assert ids.decode(ids.next_id()).worker % 2 == 0
    assert any("it holds a copy of the pool" in message for message in caplog.messages)
    findings = diagnose(urls, name)
    (finding,) = [one for one in findings if "do not belong together" in one.text]
    assert finding.severity == "error"
    assert "pool delete" in finding.advice
