"""The store over independent servers: on a test clock, then on real servers that get killed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, LayoutMismatch, PoolExhausted, StoreUnavailable
from snowredis.snowflake.memory_store import MemoryStore
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest, StoredField
from snowredis.snowflake.replies import (
    AlreadyExists,
    ClaimReply,
    Created,
    CreateReply,
    PoolFull,
    ReleaseReply,
    RenewReply,
    Seen,
    Settling,
)
from snowredis.snowflake.sharded_store import ASK_AGAIN_MS, ShardedStore
from snowredis.testing import ManualClock
from tests.support.ha import FEW, Maker, Node, assert_no_id_twice, eventually, first_id
from tests.support.holder import Holder

CONFIG = PoolConfig(name="store", layout=FEW, ttl_ms=6_000)


class Flaky(MemoryStore):
    """A MemoryStore that can be unavailable and has incarnations of its own."""

    away = False
    name = ""

    @property
    def where(self) -> str:  # type: ignore[override]
        return self.name

    def stored(self, field: StoredField) -> str:
        self._reached()
        return super().stored(field) + (f" of {self.name}" if field == "incarnation" else "")

    def _reached(self) -> None:
        if self.away:
            raise StoreUnavailable(self.name, "it is away")

    def claim(self, request: ClaimRequest, seen: Seen) -> ClaimReply:
        self._reached()
        return super().claim(request, seen)

    def renew(self, request: RenewRequest, seen: Seen) -> RenewReply:
        self._reached()
        return super().renew(request, seen)

    def release(self, request: ReleaseRequest, seen: Seen) -> ReleaseReply:
        self._reached()
        return super().release(request, seen)

    def create(self, caller_ms: int) -> CreateReply:
        self._reached()
        return super().create(caller_ms)


@dataclass
class Stage:
    clock: ManualClock
    servers: list[Flaky]
    store: ShardedStore
    # the server that a claim begins with
    first: list[int]

    def holder(self) -> Holder:
        return Holder(self.store, self.clock.server_time_ms)

    def generator(self, **options: object) -> snowredis.SnowflakeGenerator:
        return snowredis.SnowflakeGenerator(self.store, clock=self.clock, **options)  # type: ignore[arg-type]


def stage(count: int = 2, config: PoolConfig = CONFIG, *, new: bool = True) -> Stage:
    clock, first = ManualClock(), [0]
    servers = [Flaky(replace(config, share=(i, count)), clock.server_time_ms, new=new) for i in range(count)]
    for server, name in zip(servers, "abc", strict=False):
        server.name = name
    return Stage(clock, servers, ShardedStore(servers, config, choose=lambda _: first[0]), first)


# --- shares ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "count"), [(4, 2), (4, 3), (1024, 3), (2, 2), (8, 1)])
def test_the_shares_of_all_servers_are_the_pool(workers: int, count: int) -> None:
    layout = Layout(backup_bits=0, worker_bits=workers.bit_length() - 1, sequence_bits=10)
    parts = [PoolConfig(name="p", layout=layout, share=(i, count)).capacity for i in range(count)]
    assert sum(parts) == workers
    assert max(parts) - min(parts) <= 1


def test_a_share_is_part_of_the_signature_only_where_there_is_one() -> None:
    assert "share" not in PoolConfig(name="p", share=(0, 1)).signature
    assert PoolConfig(name="p", share=(1, 3)).signature == PoolConfig(name="p").signature + " share=1/3"


@pytest.mark.parametrize("share", [(2, 2), (-1, 2), (0, 0), (0, 5)])
def test_a_share_that_there_is_not_is_refused(share: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="share="):
        replace(CONFIG, share=share)


def test_stores_in_another_order_are_refused() -> None:
    servers = stage().servers
    for wrong in (servers[::-1], servers[:1], []):
        with pytest.raises(ConfigError, match="two or more"):
            ShardedStore(wrong, CONFIG)


# --- claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_worker_ids_of_server_i_are_i_modulo_the_number_of_servers(count: int) -> None:
    on = stage(count)
    taken = []
    for turn in range(FEW.workers):
        on.first[0] = turn % count
        taken.append(on.holder().claim().worker)
    assert sorted(taken) == list(range(FEW.workers))
    # nobody was turned away by the server that was asked first
    assert [worker % count for worker in taken] == [turn % count for turn in range(FEW.workers)]
    answer = on.holder().ask_claim()
    assert isinstance(answer, PoolFull)
    with pytest.raises(PoolExhausted, match="all 4 worker ids"):
        on.generator().claim()


def test_a_full_server_sends_to_the_next() -> None:
    on = stage()
    assert {on.holder().claim().worker for _ in range(4)} == {0, 1, 2, 3}


def test_a_server_that_is_away_is_passed_over_and_asked_last_next_time() -> None:
    on = stage()
    on.servers[0].away = True
    assert on.holder().claim().worker == 1
    on.servers[0].away = False
    assert on.holder().claim().worker == 3
    assert on.holder().claim().worker == 0


def test_nobody_claims_when_all_are_away() -> None:
    on = stage()
    for server in on.servers:
        server.away = True
    with pytest.raises(StoreUnavailable, match="no server is available: a: it is away; b"):
        on.holder().ask_claim()


def test_one_that_is_full_and_one_that_is_away_make_a_full_pool() -> None:
    on = stage()
    on.servers[0].away = True
    on.holder().claim()
    on.holder().claim()
    assert isinstance(on.holder().ask_claim(), PoolFull)


def test_the_floor_of_a_wiped_server_keeps_nobody_waiting() -> None:
    on = stage()
    on.servers[0].wipe()
    assert on.holder().claim().worker == 1


def test_a_pool_that_is_nowhere_makes_newcomers_wait_as_one_server_does() -> None:
    on = stage(new=False)
    answer = on.holder().ask_claim()
    assert isinstance(answer, Settling)
    assert answer.wait_ms == CONFIG.floor_ms
    on.servers[1].away = True
    # … and a server that is away is looked at again meanwhile
    answer = on.holder().ask_claim()
    assert isinstance(answer, Settling)
    assert answer.wait_ms == ASK_AGAIN_MS
    on.servers[1].away = False
    assert isinstance(on.store.create(on.clock.server_time_ms()), AlreadyExists)
    on.clock.advance(CONFIG.floor_ms)
    on.holder().claim()


def test_create_says_of_every_server_that_it_is_new() -> None:
    on = stage(new=False)
    assert isinstance(on.store.create(on.clock.server_time_ms()), Created)
    assert isinstance(on.store.create(on.clock.server_time_ms()), AlreadyExists)
    assert {on.holder().claim().worker for _ in range(4)} == {0, 1, 2, 3}
    on.servers[1].away = True
    with pytest.raises(StoreUnavailable):
        on.store.create(on.clock.server_time_ms())


def test_a_worker_id_that_opens_late_is_given_back_for_one_that_opens_now() -> None:
    on = stage(config=replace(CONFIG, layout=Layout(backup_bits=0, worker_bits=1, sequence_bits=10)))
    # one each; that of server 0 was used far ahead of this host's clock
    ahead = Holder(on.servers[0], on.clock.server_time_ms).claim()
    ahead.release(ahead.lanes_ms[0] + on.clock.server_time_ms() + 3_000)
    assert on.holder().claim().worker == 1
    # it went back with its mark, and is taken if there is no better
    late = on.holder().claim()
    assert late.worker == 0
    assert late.lanes_ms[0] >= on.clock.server_time_ms() + 3_000


def test_of_two_worker_ids_that_open_late_the_sooner_is_taken() -> None:
    on = stage(config=replace(CONFIG, layout=Layout(backup_bits=0, worker_bits=1, sequence_bits=10)))
    for server, ahead_ms in zip(on.servers, (4_000, 2_000), strict=True):
        holder = Holder(server, on.clock.server_time_ms).claim()
        holder.release(on.clock.server_time_ms() + ahead_ms)
    for first in (0, 1):
        on.first[0] = first
        holder = on.holder().claim()
        assert holder.worker == 1
        assert holder.release(0)


# --- lists that disagree ---------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[1, 0], [0, 1, None], [None, 0]])
def test_a_list_in_another_order_or_of_another_length_is_refused(places: list[int | None]) -> None:
    on = stage()
    count = len(places)
    for first in range(count):
        servers = []
        for i, place in enumerate(places):
            config = replace(CONFIG, share=(i, count))
            fresh = Flaky(config, on.clock.server_time_ms)
            fresh.name = f"other{i}" if place is None else on.servers[place].name
            if place is not None:
                # the same server, seen by a deployment that gives it another place
                fresh.stored = on.servers[place].stored  # type: ignore[method-assign]
            servers.append(fresh)
        theirs = ShardedStore(servers, CONFIG, choose=lambda _, first=first: first)  # type: ignore[misc]
        with pytest.raises(LayoutMismatch, match="place in the list of servers"):
            Holder(theirs, on.clock.server_time_ms).claim()


def test_a_server_named_twice_is_refused() -> None:
    memory = snowredis.testing.memory_pool()
    for twice in (["redis://h/0", "redis://h:6379/0"], [memory, memory]):
        with pytest.raises(ConfigError, match="twice"):
            snowredis.connect(twice)
    with pytest.raises(ConfigError, match="the list of URLs is empty"):
        snowredis.connect([])


def test_a_list_of_one_is_that_one() -> None:
    with snowredis.connect([snowredis.testing.memory_pool()]) as ids:
        ids.next_id()
        assert not ids._lease_manager.store.redundant


def test_more_servers_than_worker_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="Name fewer servers"):
        snowredis.connect(["redis://a", "redis://b"], layout="41/0/2/0/12")


# --- generators ------------------------------------------------------------------------------------


def test_pools_in_memory_can_be_independent_servers_too() -> None:
    clock = ManualClock()
    pools = [snowredis.testing.memory_pool(clock=clock) for _ in range(2)]
    made = [snowredis.connect(pools) for _ in range(20)]
    workers = [ids.claim().worker for ids in made]
    assert len(set(workers)) == 20
    assert {worker % 2 for worker in workers} == {0, 1}


def test_a_holder_whose_server_is_away_moves_when_half_of_the_ttl_is_left() -> None:
    on = stage()
    ids = on.generator()
    before = [ids.next_id()]
    assert ids.lease is not None
    assert ids.lease.worker == 0
    old = ids.lease
    on.servers[0].away = True
    on.clock.advance(2_900)
    ids._beat()
    assert ids.lease.worker == 0
    on.clock.advance(200)
    ids._beat()
    assert ids.lease.worker == 1
    after = [ids.next_id() for _ in range(10)]
    assert_no_id_twice(before, after)
    assert min(after) > before[0]
    # its own worker id is free again after a ttl, above what was reserved
    on.servers[0].away = False
    on.clock.advance(CONFIG.ttl_ms)
    ids._beat()
    heirs = [on.holder().claim() for _ in range(3)]
    heir = next(heir for heir in heirs if heir.worker == old.worker)
    assert heir.lanes_ms[0] >= old.until_ms


def test_without_a_heartbeat_the_move_happens_inside_next_id() -> None:
    on = stage()
    ids = on.generator()
    first = ids.next_id()
    on.servers[0].away = True
    on.clock.advance(CONFIG.ttl_ms + 1)
    assert ids.next_id() > first
    assert ids.lease is not None
    assert ids.lease.worker == 1


def test_a_holder_that_can_move_nowhere_keeps_what_it_has_to_the_end() -> None:
    on = stage()
    ids = on.generator()
    ids.next_id()
    for server in on.servers:
        server.away = True
    on.clock.advance(5_000)
    ids._beat()
    ids.next_id()
    on.clock.advance(1_001)
    with pytest.raises(snowredis.LeaseExpired, match="it is away"):
        ids.next_id()
    on.servers[1].away = False
    on.clock.advance(600)
    ids.next_id()
    assert ids.lease is not None
    assert ids.lease.worker == 1


def test_a_move_gives_the_worker_id_back_if_its_server_is_there_again() -> None:
    on = stage()
    ids = on.generator()
    ids.next_id()
    on.servers[0].away = True
    on.clock.advance(3_500)

    def back(request: ClaimRequest, seen: Seen) -> ClaimReply:
        on.servers[0].away = False
        return MemoryStore.claim(on.servers[1], request, seen)

    on.servers[1].claim = back  # type: ignore[method-assign]
    ids._beat()
    assert ("released", 0) in on.servers[0].events


def test_a_closed_generator_does_not_move() -> None:
    on = stage()
    ids = on.generator()
    ids.next_id()
    ids.close()
    on.servers[0].away = True
    on.clock.advance(3_500)
    ids._beat()
    assert [name for name, _ in on.servers[1].events] == []


# --- real servers ----------------------------------------------------------------------------------

REAL: dict[str, Any] = {"ttl": 2.0}


def test_both_servers_are_used_and_each_has_its_worker_ids(two: list[Node], new_pool: Callable[..., str]) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls)
    with contextlib.ExitStack() as stack:
        for i in range(30):
            stack.enter_context(snowredis.connect(urls, pool=name, label=f"w{i}")).claim()
        pool = snowredis.WorkerPool(urls, name)
        stack.callback(pool.close)
        workers = pool.workers()
        assert sorted(worker.label for worker in workers) == sorted(f"w{i}" for i in range(30))
        parts = []
        for i, node in enumerate(two):
            with contextlib.closing(node.client()) as client:
                mine = [worker.worker for worker in workers if worker.worker % 2 == i]
                fields = list(map(str, client.hkeys(f"snowredis:{{{name}}}")))
                assert {f"w:{worker // 2}" for worker in mine} == {f for f in fields if f.startswith("w:")}
                parts.append(len(mine))
        assert min(parts) >= 1
        info = pool.info()
        assert (info.capacity, info.used, info.claims) == (1024, 30, 30)
    assert pool.workers() == []


@pytest.mark.parametrize("dead", [0, 1])
def test_killing_a_server_stops_nobody(two: list[Node], new_pool: Callable[..., str], dead: int) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls, layout=FEW, ttl_ms=2_000)
    options = REAL | {"pool": name, "layout": FEW}
    everybody = [snowredis.connect(urls, **options) for _ in range(FEW.workers)]
    for ids in everybody:
        ids.claim()
    # one is left on each
    by_server = {ids.lease.worker % 2: ids for ids in everybody if ids.lease is not None}
    for ids in everybody:
        if ids not in by_server.values():
            ids.close()
    with contextlib.ExitStack() as stack:
        makers = [stack.enter_context(Maker(ids)) for ids in by_server.values()]
        two[dead].kill()
        with contextlib.closing(snowredis.connect(urls, **options)) as newcomer:
            an_id = first_id(newcomer, 5)
        assert newcomer.decode(an_id).worker % 2 != dead
        moving = by_server[dead]
        eventually(lambda: moving.lease.worker % 2 != dead)
        for maker in makers:
            maker.wait_for_ids(50)
    for maker in makers:
        # it made ids all along: next_id() never raised, and wait_for_ids() returned
        assert not maker.errors
    assert_no_id_twice(*(maker.ids for maker in makers))


def test_a_server_that_hangs_stops_nobody(two: list[Node], new_pool: Callable[..., str]) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls, ttl_ms=4_000)
    with contextlib.ExitStack() as stack:
        makers: list[Maker] = []
        while {maker.lease.worker % 2 for maker in makers} != {0, 1}:
            makers.append(stack.enter_context(Maker(snowredis.connect(urls, pool=name, ttl=4))))
        two[0].kill(signal.SIGSTOP)
        newcomer = stack.enter_context(Maker(snowredis.connect(urls, pool=name, ttl=4)))
        makers.append(newcomer)
        eventually(lambda: all(maker.lease.worker % 2 for maker in makers), limit_s=6)
        two[0].kill(signal.SIGCONT)
    for maker in makers:
        assert not maker.errors
    assert_no_id_twice(*(maker.ids for maker in makers))


def test_wiping_a_server_stops_nobody(two: list[Node], new_pool: Callable[..., str]) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls, ttl_ms=2_000)
    options = REAL | {"pool": name}
    with contextlib.ExitStack() as stack:
        makers = [stack.enter_context(Maker(snowredis.connect(urls, **options))) for _ in range(6)]
        workers = [maker.lease.worker for maker in makers]
        two[0].ask("FLUSHALL")
        newcomer = stack.enter_context(contextlib.closing(snowredis.connect(urls, **options)))
        an_id = first_id(newcomer, 5)
        assert newcomer.decode(an_id).worker % 2 == 1
        for maker in makers:
            maker.wait_for_renewals(2)
        # the living were taken up again where they were
        assert [maker.lease.worker for maker in makers] == workers
    for maker in makers:
        assert not maker.errors
    assert_no_id_twice(*(maker.ids for maker in makers), [an_id])


def test_deployments_with_other_lists_are_refused(two: list[Node], new_pool: Callable[..., str]) -> None:
    urls = [node.url for node in two]
    name = new_pool(urls)
    with snowredis.connect(urls, pool=name) as ids:
        ids.next_id()
        for others in (
            urls[::-1],
            urls[0],
            urls[1],
            [*urls, "redis://127.0.0.1:1"],
            ["redis://127.0.0.1:1", *urls],
        ):
            for _ in range(3):
                with pytest.raises(LayoutMismatch):
                    snowredis.connect(others, pool=name).next_id()


def test_blanks_stand_between_the_servers_in_the_environment() -> None:
    from snowredis.settings import from_environment

    assert from_environment({"SNOWREDIS_URL": "redis://a:1 redis://b:2"})["url"] == [
        "redis://a:1",
        "redis://b:2",
    ]
    assert from_environment({"SNOWREDIS_URL": "unix:///a path/x.sock"})["url"] == "unix:///a path/x.sock"
    assert from_environment({"SNOWREDIS_MIN_REPLICAS": "all"}) == {"min_replicas": "all"}
    assert from_environment({"SNOWREDIS_MIN_REPLICAS": "2"}) == {"min_replicas": 2}
