"""Jobs of other systems of the field, which snowredis does at least as well: one test or more for each of them.

Ids of those systems are ones that they published, with the times that they say. More of them are in
tests/core/test_presets.py.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import snowredis
from snowredis.cli import main
from snowredis.core.presets import layouts
from snowredis.kinds.lookup import kind_names
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.testing import ManualClock, MemoryPool, memory_pool
from snowredis.web.service import create_app
from tests.support.servers import RedisServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> MemoryPool:
    return memory_pool(clock=clock)


@pytest.fixture
def two_servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        servers.append(RedisServer(tmp_path / name))
        servers[-1].start()
    yield servers
    for server in servers:
        server.kill()


def connect(server: MemoryPool, **settings: Any) -> SnowflakeGenerator:
    return snowredis.connect(server, **settings)


# --- Twitter Snowflake (2010) -------------------------------------------------------------------------


def test_twitter_an_id_of_a_tweet_has_the_time_of_the_tweet() -> None:
    # twitter.com/Wikipedia/status/1541815603606036480: 2022-06-28T16:07:40.105Z, machine 378 = 11, 26
    parts = layouts["twitter"].decode(1541815603606036480)
    assert (parts.time, parts.datacenter, parts.worker) == (
        datetime(2022, 6, 28, 16, 7, 40, 105_000, tzinfo=UTC),
        11,
        26,
    )
    assert layouts["twitter"].ids_per_second > 10_000


def test_twitter_a_clock_that_goes_back_is_refused(pool: MemoryPool, clock: ManualClock) -> None:
    ids = connect(pool, layout="twitter", clock_policy="raise")
    before = ids.next_id()
    clock.step(-1)
    with pytest.raises(snowredis.ClockMovedBack):
        ids.next_id()
    clock.advance(1)
    assert ids.next_id() > before


def test_twitter_id_4097_of_a_millisecond_waits_for_the_next(pool: MemoryPool, clock: ManualClock) -> None:
    ids = connect(pool, layout="twitter")
    clock.advance(1)
    ids.next_id()
    clock.advance(1)
    at_ms = clock.time_ns() // 1_000_000
    made = [ids.decode(ids.next_id()) for _ in range(4097)]
    assert [parts.sequence for parts in made] == [*range(4096), 0]
    assert (made[0].timestamp_ms, made[-1].timestamp_ms) == (at_ms, at_ms + 1)


def test_twitter_a_process_that_contradicts_the_registry_makes_no_id(pool: MemoryPool, clock: ManualClock) -> None:
    connect(pool, layout="twitter").next_id()
    with pytest.raises(snowredis.LayoutMismatch, match="datacenter is 0 in the pool, 3 here"):
        connect(pool, layout="twitter", datacenter=3).next_id()
    # its own clock, an hour ahead of that of the registry
    ahead = ManualClock()
    ahead.advance(3_600_000)
    with pytest.raises(snowredis.ClockSkewed, match="ahead of the clock of Redis"):
        snowredis.connect(pool, layout="twitter", clock=ahead).next_id()


# --- JD logistics' variant ----------------------------------------------------------------------------


def test_jd_its_example_is_tick_1_machine_1_sequence_1() -> None:
    parts = layouts["jd"].decode(4198401)
    assert (parts.timestamp_ms - 1422720000000, parts.worker, parts.sequence) == (1, 1, 1)


def test_jd_hosts_whose_addresses_have_one_sum_get_different_worker_ids(pool: MemoryPool) -> None:
    # 10.0.5.2 and 10.0.2.5: their bytes have the sum 17 both
    hosts = [connect(pool, layout="jd", label=label) for label in ("10.0.5.2", "10.0.2.5")]
    assert len({host.decode(host.next_id()).worker for host in hosts}) == 2


def test_jd_a_small_step_back_is_waited_for_and_a_large_one_uses_a_backup_namespace(
    pool: MemoryPool, clock: ManualClock
) -> None:
    ids = connect(pool, layout="41/0/2/10/10", clock_tolerance_ms=5)
    ids.claim()
    # a pool begins with its creation, in all namespaces
    clock.advance(10_000)
    before = ids.decode(ids.next_id())
    clock.step(-5)
    assert ids.decode(ids.next_id()).backup == before.backup
    clock.step(-1000)
    after = ids.decode(ids.next_id())
    assert after.backup != before.backup
    assert after.worker == before.worker


def test_jd_two_parts_of_a_program_share_the_generator_of_the_process(pool: MemoryPool) -> None:
    snowredis.close()
    with snowredis.testing.use(lambda: connect(pool)):
        first, second = snowredis.next_id, snowredis.next_id
        made = [make() for _ in range(100) for make in (first, second)]
    assert len(set(made)) == 200


# --- "simple Snowflake": a random start of the sequence --------------------------------------------------


def test_simple_snowflake_ids_of_a_quiet_service_are_not_all_even(pool: MemoryPool, clock: ManualClock) -> None:
    remainders = {}
    for start in ("zero", "random"):
        ids = connect(pool, pool=start, sequence_start=start)
        made = []
        for _ in range(200):
            clock.advance(1)
            made.append(ids.next_id() % 8)
        remainders[start] = set(made)
    assert remainders == {"zero": {0}, "random": set(range(8))}


# --- Meituan Leaf, snowflake mode -----------------------------------------------------------------------


def test_leaf_a_process_that_comes_back_never_uses_times_that_were_used(pool: MemoryPool, clock: ManualClock) -> None:
    ids = connect(pool, layout="leaf")
    made = ids.next_ids(10)
    for back_ms in (2, 50, 3_000):
        ids.close()
        # Leaf refuses to start if the clock is behind what ZooKeeper has; here there are other worker ids
        clock.step(-back_ms)
        ids = connect(pool, layout="leaf")
        made += ids.next_ids(10)
    assert len(set(made)) == 40


def test_leaf_ids_and_what_is_in_them_are_served_over_http(server: RedisServer) -> None:
    app = create_app(server.url, pools=["leaf"], create=True, layout="leaf", ttl=0.5)
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        an_id = client.get("/id").json()["id"]
        decoded = client.get(f"/decode/{an_id}").json()
    assert decoded["id"] == an_id
    assert {field["name"] for field in decoded["fields"]} >= {"timestamp", "worker", "sequence"}


# --- Meituan Leaf, segment mode; Didi Tinyid -----------------------------------------------------------


def test_leaf_segments_follow_the_consumption_and_are_fetched_ahead(pool: MemoryPool) -> None:
    with (
        snowredis.generator("segment", url=pool, tag="orders", step=10) as orders,
        snowredis.generator("segment", url=pool, tag="users", step=10) as users,
    ):
        assert orders.next_ids(5) == [1, 2, 3, 4, 5]
        assert users.next_id() == 1
        made = [orders.next_id() for _ in range(5000)]
        assert len(set(made)) == 5000
        assert made == sorted(made)


def test_tinyid_several_servers_have_their_own_remainder_each() -> None:
    servers = [memory_pool() for _ in range(3)]
    with snowredis.generator("segment", url=servers, tag="orders", step=10, max_step=10) as ids:
        made = [ids.next_id() for _ in range(300)]
    assert len(set(made)) == 300
    shares = [{number % 3 for number in made[at : at + 10]} for at in range(0, 300, 10)]
    # a segment is of one server
    assert {len(share) for share in shares} <= {1, 2}
    assert set().union(*shares) == {0, 1, 2}


# --- Baidu uid-generator --------------------------------------------------------------------------------


def test_uid_generator_an_old_id_is_read_and_no_new_one_is_made_after_its_end(pool: MemoryPool) -> None:
    layout = layouts["uid-generator"]
    # the last one that it could make: 2024-11-20 21:24:16 in China, says its documentation, is the first it cannot
    assert layout.decode(layout.compose(tick=layout.max_tick)).time == datetime(2024, 11, 20, 13, 24, 15, tzinfo=UTC)
    with pytest.raises(snowredis.LayoutError, match="have been used up since 2024-11-20"):
        connect(pool, layout="uid-generator")


def test_uid_generator_a_layout_that_ends_within_a_year_is_warned_of(
    pool: MemoryPool, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    layout = layouts["uid-generator"]
    clock.step(layout.end_ms - 1000 - clock.time_ns() // 1_000_000)
    with caplog.at_level(logging.WARNING, "snowredis"):
        connect(pool, layout="uid-generator", pool="ending")
    assert "last only until 2024-11-20 13:24:16" in caplog.text


def test_uid_generator_future_seconds_are_borrowed(pool: MemoryPool, clock: ManualClock) -> None:
    ids = connect(pool, layout="41/0/2/10/4", overflow="ahead", max_ahead_ms=5_000)
    now_ms = clock.time_ns() // 1_000_000
    last = ids.decode(ids.next_ids(1_000)[-1])
    assert clock.time_ns() // 1_000_000 == now_ms
    assert 55 < last.timestamp_ms - now_ms < 65


def test_uid_generator_worker_ids_come_back(pool: MemoryPool, clock: ManualClock) -> None:
    used = set()
    for _ in range(50):
        with connect(pool, layout="41/0/2/2/10") as ids:
            used.add(ids.decode(ids.next_id()).worker)
        clock.advance(1)
    assert used <= set(range(4))


# --- Flickr ticket servers -------------------------------------------------------------------------------


def test_flickr_either_of_two_servers_may_be_down(two_servers: list[RedisServer]) -> None:
    urls = [server.url for server in two_servers]
    with snowredis.generator("segment", url=urls, tag="photos", max_step=1, step=1, prefetch=False) as ids:
        for index, store in enumerate(ids._stores):  # type: ignore[attr-defined]
            store.open(snowredis.numbers.tag_store.OpenRequest("create", 0))
            assert store.config.share == (index, 2)
        made = [ids.next_id() for _ in range(20)]
        assert {number % 2 for number in made} == {0, 1}
        two_servers[0].kill()
        made += [ids.next_id() for _ in range(20)]
        assert len(set(made)) == 40
        # after a few that were fetched before
        assert len({number % 2 for number in made[-10:]}) == 1


# --- MongoDB ObjectId, UUID, ULID ------------------------------------------------------------------------


def test_mongodb_an_objectid_has_the_time_that_its_manual_says() -> None:
    # MongoDB's manual, ObjectId.getTimestamp(): 507c7f79bcf86cd7994f6c0e is of 2012-10-15T21:26:17Z
    bson = pytest.importorskip("bson")
    assert bson.ObjectId("507c7f79bcf86cd7994f6c0e").generation_time == datetime(2012, 10, 15, 21, 26, 17, tzinfo=UTC)
    ours = bson.ObjectId(snowredis.generator("objectid").next_id())
    assert abs((datetime.now(UTC) - ours.generation_time).total_seconds()) < 60


def test_uuid_a_version_7_has_the_time_at_which_the_rfc_puts_it() -> None:
    # RFC 9562, A.6: 017F22E2-79B0-7CC3-98C4-DC0C0C07398F is of 2022-02-22T14:22:22-05:00
    example = uuid.UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
    at = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert (example.int >> 80, example.version) == (round(at.timestamp() * 1000), 7)
    ours = snowredis.generator("uuid7").next_ids(1000)
    assert ours == sorted(ours)
    assert {each.version for each in ours} == {7}
    assert abs((ours[0].int >> 80) / 1000 - datetime.now(UTC).timestamp()) < 60


def test_ulid_the_text_has_the_time_that_its_authors_example_has() -> None:
    # ulid/javascript, README: ulid(1469918176385) begins with 01ARYZ6S41
    ulid = pytest.importorskip("ulid_transform")
    assert ulid.ulid_to_timestamp("01ARYZ6S41TSV4RRFFQ69G5FAV") == 1469918176385
    ours = snowredis.generator("ulid").next_id()
    assert abs(ulid.ulid_to_timestamp(ours) / 1000 - datetime.now(UTC).timestamp()) < 60


# --- auto-increment of a database; game servers ------------------------------------------------------------


def test_auto_increment_two_shards_that_counted_by_themselves_clash_and_the_check_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = sqlite3.connect(tmp_path / "game.db")
    for shard, numbers in (("a", range(1, 101)), ("b", range(91, 201))):
        database.execute(f"CREATE TABLE shard_{shard} (id INTEGER PRIMARY KEY)")
        database.executemany(f"INSERT INTO shard_{shard} VALUES (?)", [(number,) for number in numbers])
    database.commit()
    database.close()
    sources = [f"sqlite:///{tmp_path}/game.db#shard_{shard}.id" for shard in "ab"]
    assert main(["merge", "check", *sources]) == 10
    assert "10 ids are used by more than one row" in capsys.readouterr().out


def test_game_servers_make_a_burst_at_once_and_merge_without_a_clash(pool: MemoryPool, clock: ManualClock) -> None:
    now = clock.time_ns()
    servers = [connect(pool, layout="game") for _ in range(2)]
    made = [server.next_ids(30_000) for server in servers]
    assert clock.time_ns() == now
    assert len({*made[0], *made[1]}) == 60_000
    # "37 ms / 20 / 16", as an article proposes
    with pytest.raises(snowredis.LayoutError, match="73"):
        snowredis.Layout(timestamp_bits=37, backup_bits=0, worker_bits=20, sequence_bits=16)


# --- Apache ShardingSphere ---------------------------------------------------------------------------------


def test_shardingsphere_its_end_of_time_and_its_kinds_are_here() -> None:
    layout = layouts["shardingsphere"]
    assert (layout.timestamp_bits, layout.worker_bits, layout.sequence_bits) == (41, 10, 12)
    assert layout.ms_at(0) == datetime(2016, 10, 31, 16, tzinfo=UTC).timestamp() * 1000
    # its UUID and SNOWFLAKE; others by entry points, see tests/kinds/test_lookup.py
    assert {"uuid4", "snowflake"} <= set(kind_names())


@pytest.mark.parametrize(("back_ms", "works"), [(10, True), (11, False)])
def test_shardingsphere_a_step_back_within_the_tolerance_is_waited_for_and_more_is_an_error(
    pool: MemoryPool, clock: ManualClock, back_ms: int, works: bool
) -> None:
    ids = connect(pool, layout="shardingsphere", clock_policy="wait", max_wait_ms=10)
    before = ids.next_id()
    clock.step(-back_ms)
    if works:
        assert ids.next_id() > before
    else:
        with pytest.raises(snowredis.ClockMovedBack):
            ids.next_id()


def test_shardingsphere_ids_of_a_quiet_service_spread_over_shards(pool: MemoryPool, clock: ManualClock) -> None:
    # its max-vibration-offset
    ids = connect(pool, layout="shardingsphere", sequence_start="random", sequence_start_bound=4)
    shards = set()
    for _ in range(100):
        clock.advance(1)
        shards.add(ids.next_id() % 4)
    assert shards == {0, 1, 2, 3}


# --- CosId -------------------------------------------------------------------------------------------------


def test_cosid_text_forms_and_ids_that_javascript_can_hold(pool: MemoryPool) -> None:
    ids = connect(pool, layout="js-safe")
    an_id = ids.next_id()
    assert an_id < 2**53
    for form in ("base62", "friendly", "hex"):
        text = snowredis.encode(an_id, form, layout=ids.layout)
        assert snowredis.parse(text, form, layout=ids.layout) == an_id


def test_cosid_a_chain_of_segments_is_filled_into_a_buffer(pool: MemoryPool) -> None:
    from array import array

    buffer = array("q", bytes(8 * 50_000))
    with snowredis.generator("segment", url=pool, tag="chain") as ids:
        ids.fill(buffer)
    assert len(set(buffer)) == 50_000


def test_cosid_a_process_whose_lease_was_given_to_another_stops_instead_of_logging_it(
    pool: MemoryPool, clock: ManualClock
) -> None:
    ids = connect(pool, layout="41/0/0/1/10")
    made = ids.next_ids(10)
    # a pause past the lease, in which others get both worker ids
    clock.advance(120_000)
    others = [connect(pool, layout="41/0/0/1/10", claim_timeout=0.0) for _ in range(2)]
    made += itertools.chain.from_iterable(other.next_ids(10) for other in others)
    with pytest.raises(snowredis.SnowredisError):
        ids.next_id()
    assert len(set(made)) == 30


# --- yitter IdGenerator --------------------------------------------------------------------------------------


def test_yitter_registrations_have_owners(pool: MemoryPool) -> None:
    ids, other = connect(pool), connect(pool)
    one, two = ids.claim(), other.claim()
    assert one.worker != two.worker
    assert ids.next_id() != other.next_id()


def test_yitter_reserved_values_for_a_clock_that_goes_back_repeat_nothing(pool: MemoryPool, clock: ManualClock) -> None:
    ids = connect(pool, overflow="ahead")
    made = []
    for step in (0, -200, -3_000, 5_000, -700, 2_000):
        clock.step(step)
        made += ids.next_ids(3_000)
        clock.advance(10)
    assert len(set(made)) == len(made)
