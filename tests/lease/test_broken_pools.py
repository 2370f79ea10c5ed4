"""Pools that a person deleted, edited or filled by hand, in a real Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis import WorkerPool
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, PoolBroken, PoolNotFound, StoreRefused
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Created, Granted, Renewed, Settling
from tests.lease.conftest import really_wait, wall_ms
from tests.support.holder import Holder, fresh_hex
from tests.support.servers import RedisServer

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
DAY_MS = 24 * 3600 * 1000
LONG = PoolConfig(name="long", layout=LAYOUT, ttl_ms=30_000)
SHORT = replace(LONG, ttl_ms=120, max_clock_lead_ms=10, redis_skew_ms=10)


def new_pool(server: RedisServer, config: PoolConfig) -> RedisStore:
    store = RedisStore(server.url, replace(config, name=f"pool{fresh_hex()[-6:]}"))
    assert isinstance(store.create(wall_ms()), Created)
    return store


def again(store: RedisStore, server: RedisServer, config: PoolConfig) -> RedisStore:
    """Return the pool of the same name, with other constants."""
    return RedisStore(server.url, replace(config, name=store.config.name))


def holder(store: RedisStore) -> Holder:
    return Holder(store, wall_ms)


# --- deleted ---------------------------------------------------------------------------------------


def test_a_pool_that_comes_back_with_a_shorter_ttl_starts_above_the_reservations_of_the_longer(
    server: RedisServer,
) -> None:
    store = new_pool(server, LONG)
    old = holder(store).claim()
    done = WorkerPool(server.url, store.config.name).delete(force=True)
    assert (done.alive, done.guessed) == (1, False)
    assert 0 < done.wait_ms <= LONG.ttl_ms
    short = again(store, server, SHORT)
    # whether somebody says that it is new or not
    for answer in (short.create(wall_ms()), holder(short).ask_claim()):
        assert answer.floor_ms >= old.until_ms
    assert isinstance(holder(short).ask_claim(), Settling)
    # who has a reservation of the pool before this one has lost it
    with pytest.raises(LayoutMismatch):
        old.ask_renew()


def test_what_a_deleted_pool_leaves_is_small_and_is_never_evicted_before_other_keys(
    server: RedisServer,
) -> None:
    store = new_pool(server, LONG)
    name, client = store.config.name, server.client()
    old = holder(store).claim()
    version = int(client.hget(pool_keys(name)[0], "version") or 0)
    before = wall_ms()
    WorkerPool(server.url, name).delete(force=True)
    left: Any = client.hgetall(pool_keys(name)[0])
    assert left.keys() == {"floor", "floor_at", "top", "incarnation", "version", "run_id", "ends"}
    assert (left["floor"], left["incarnation"]) == (str(old.until_ms), old.seen.incarnation)
    assert left["version"] == str(version)
    assert client.exists(*pool_keys(name)[1:]) == 0
    # a Redis with maxmemory-policy volatile-* evicts keys with an expiry time
    assert client.ttl(pool_keys(name)[0]) == -1
    # a day beyond the last mark
    assert before < int(left["ends"]) <= old.until_ms + DAY_MS
    # nothing to look at, nothing to delete
    looked = WorkerPool(server.url, name)
    assert name not in looked.pools()
    for read in (looked.info, looked.workers, looked.delete):
        with pytest.raises(PoolNotFound):
            read()
    # the pool that comes after it stays
    holder(store).ask_claim()
    assert client.ttl(pool_keys(name)[0]) == -1
    assert int(client.hget(pool_keys(name)[0], "version") or 0) > version


def test_what_a_deleted_pool_left_is_dropped_by_the_next_script_after_its_end(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    key, client = pool_keys(store.config.name)[0], server.client()
    old = holder(store).claim()
    WorkerPool(server.url, store.config.name).delete(force=True)
    client.hset(key, mapping={"ends": wall_ms() - 1, "version": 77})
    anew = again(store, server, LONG)
    created = anew.create(wall_ms())
    assert isinstance(created, Created)
    assert created.version == 1
    assert created.floor_ms == 0
    assert max(holder(anew).claim().lanes_ms) < old.until_ms


@pytest.mark.parametrize("refused", ["hdel", "zadd", "hset", "xadd", "unlink", "hincrby"])
def test_a_user_without_one_right_leaves_a_whole_pool_or_none(own_server: RedisServer, refused: str) -> None:
    client = own_server.client()
    client.execute_command("ACL", "SETUSER", "app", "on", ">x", "~*", "+@all", f"-{refused}")
    poor = RedisStore(own_server.url, replace(LONG, name="poor"))
    poor._client = client.from_url(own_server.url, username="app", password="x")
    key = pool_keys("poor")[0]
    with contextlib.suppress(StoreRefused):
        poor.create(wall_ms())
    with contextlib.suppress(StoreRefused):
        holder(poor).ask_claim()
    fields: Any = client.hgetall(key)
    whole = {
        "signature",
        "floor",
        "floor_at",
        "top",
        "incarnation",
        "run_id",
        "version",
        "last",
        "records",
        "next",
    }
    assert not fields or whole <= fields.keys()
    # whoever may do everything goes on
    rich = RedisStore(own_server.url, replace(LONG, name="poor"))
    rich.create(wall_ms())
    assert isinstance(holder(rich).ask_claim(), Granted | Settling)


def test_living_workers_bring_a_deleted_pool_back_and_keep_their_worker_ids(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    living = holder(store).claim()
    WorkerPool(server.url, store.config.name).delete(force=True)
    answer = living.ask_renew()
    assert isinstance(answer, Renewed)
    assert (answer.adopted, answer.alarm) == (True, None)
    assert server.client().ttl(pool_keys(store.config.name)[0]) == -1


def test_a_pool_made_in_the_place_of_a_deleted_one_starts_above_what_was_used(server: RedisServer) -> None:
    """Also for a host whose clock is behind, and for a pool that a person creates."""
    store = new_pool(server, LONG)
    used_ms = wall_ms()
    assert holder(store).claim().release(used_ms, 0)
    WorkerPool(server.url, store.config.name).delete()
    anew = again(store, server, LONG)
    assert isinstance(anew.create(wall_ms()), Created)
    assert min(holder(anew).claim().lanes_ms) >= used_ms


def test_a_pool_whose_leases_are_all_released_leaves_nothing_to_wait_for(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    assert holder(store).claim().release(wall_ms(), 0)
    done = WorkerPool(server.url, store.config.name).delete()
    assert done.wait_ms == 0
    assert server.client().hget(pool_keys(store.config.name)[0], "signature") is None
    short = again(store, server, SHORT)
    assert short.create(wall_ms()).floor_ms <= wall_ms()
    assert max(holder(short).claim().lanes_ms) <= wall_ms()


@pytest.mark.parametrize("why", ["another server", "nothing is known", "too many records", "a broken record"])
def test_where_the_records_may_not_be_all_a_deleted_pool_leaves_a_whole_floor(server: RedisServer, why: str) -> None:
    config = replace(LONG, durability="none") if why == "nothing is known" else LONG
    store = new_pool(server, config)
    client, (key, _, _) = server.client(), pool_keys(store.config.name)
    old = holder(store).claim()
    old.release(wall_ms(), 0)
    if why == "another server":
        client.hset(key, "run_id", "0")
    elif why == "too many records":
        client.hset(key, mapping={f"t:{number:040x}": "1" for number in range(2_050)})
    elif why == "a broken record":
        client.hset(key, "w:3", "what is this?")
    began = wall_ms()
    done = WorkerPool(server.url, store.config.name).delete(force=True)
    assert done.wait_ms == LONG.floor_ms
    assert int(client.hget(key, "floor") or 0) >= began + LONG.floor_ms


# --- edited by hand --------------------------------------------------------------------------------

EDITS = {
    "floor": ["soon", "", "-1", "1e3", "9" * 16, "nan"],
    "version": ["x", "1.5"],
    "last": ["\x1b[31m"],
    "records": ["many"],
    "next": ["0x10", "-2"],
    "incarnation": ["", "here", "12", "9" * 20 + "-ab"],
}


def calls(store: RedisStore, living: Holder) -> list[Callable[[], object]]:
    return [holder(store).ask_claim, living.ask_renew, living.release, lambda: store.create(wall_ms())]


@pytest.mark.parametrize(("field", "text"), [(field, text) for field, texts in EDITS.items() for text in texts])
def test_a_field_that_no_script_wrote_is_named_and_nothing_changes(server: RedisServer, field: str, text: str) -> None:
    store = new_pool(server, LONG)
    client, (key, _, _) = server.client(), pool_keys(store.config.name)
    living = holder(store).claim()
    client.hset(key, field, text)
    before = client.hgetall(key)
    for call in calls(store, living):
        with pytest.raises(PoolBroken) as caught:
            call()
        assert (caught.value.field, caught.value.value) == (field, text)
        assert f"snowredis pool delete {store.config.name}" in str(caught.value)
        assert str(caught.value).isprintable()
    assert client.hgetall(key) == before
    # as it says
    done = WorkerPool(server.url, store.config.name).delete(force=True)
    assert done.wait_ms == LONG.floor_ms
    assert living.ask_renew().adopted


@pytest.mark.parametrize("field", EDITS)
def test_a_field_that_somebody_removed_is_named(server: RedisServer, field: str) -> None:
    store = new_pool(server, LONG)
    living = holder(store).claim()
    server.client().hdel(pool_keys(store.config.name)[0], field)
    for call in calls(store, living):
        with pytest.raises(PoolBroken, match=f"field '{field}' .* holds ''"):
            call()


@pytest.mark.parametrize("text", ["", "a|b", "{}", "|" * 9, "a|1-b||5|5|" + "9" * 400 + "|1|1|0|{}"])
def test_a_record_that_no_script_wrote_is_named_to_its_holder_and_others_are_served(
    server: RedisServer, text: str
) -> None:
    store = new_pool(server, LONG)
    living, other = holder(store).claim(), holder(store).claim()
    server.client().hset(pool_keys(store.config.name)[0], "w:0", text)
    for call in (living.ask_renew, living.release):
        with pytest.raises(PoolBroken) as caught:
            call()
        assert caught.value.field == "w:0"
    assert isinstance(other.ask_renew(), Renewed)
    assert holder(store).claim().worker == 2


@pytest.mark.parametrize("place", range(12))
def test_a_record_with_a_field_more_or_less_is_read_by_nobody(server: RedisServer, place: int) -> None:
    store = new_pool(server, LONG)
    living = holder(store).claim()
    assert isinstance(living.ask_renew(), Renewed)
    client, key = server.client(), pool_keys(store.config.name)[0]
    text = str(client.hget(key, "w:0"))
    record = LeaseRecord.parse(text)
    assert record is not None
    assert record.pack() == text
    assert (record.stats.ids_made, record.owner, record.until_ms) == (7, '{"host":"h"}', living.until_ms)
    parts = text.split("|")
    more = [[*parts[:place], new, *parts[place:]] for new in ("", "7", "7,8", "1,2,3,4,5", "5a")]
    for changed in [*more[: 5 * (place <= 10)], *[parts[:place] + parts[place + 1 :]] * (place <= 10)]:
        client.hset(key, "w:0", "|".join(changed))
        assert LeaseRecord.parse("|".join(changed)) is None
        with pytest.raises(PoolBroken, match="field 'w:0'"):
            living.ask_renew()


@pytest.mark.parametrize("field", ["claims", "peak", "alarms", "lost", "rebuild", "rebuilt"])
def test_a_counter_that_no_script_wrote_stops_nobody(server: RedisServer, field: str) -> None:
    store = new_pool(server, LONG)
    client, (key, leases, _) = server.client(), pool_keys(store.config.name)
    client.hset(key, field, "a few")
    living = holder(store).claim()
    assert isinstance(living.ask_renew(), Renewed)
    client.delete(leases)
    assert holder(store).claim().worker == 1
    client.hset(key, "version", 0)
    assert living.ask_renew().alarm


@pytest.mark.parametrize(
    ("signature", "guessed"),
    [("layout=none", True), ("", True), ("nonsense \x1b", True), (f"x {LONG.signature} ttl_ms=1", False)],
)
def test_a_pool_with_a_signature_that_no_script_wrote_is_deleted_all_the_same(
    server: RedisServer, signature: str, guessed: bool
) -> None:
    store = new_pool(server, LONG)
    old = holder(store).claim()
    server.client().hset(pool_keys(store.config.name)[0], "signature", signature)
    done = WorkerPool(server.url, store.config.name).delete(force=True)
    assert done.guessed == guessed
    answer = holder(again(store, server, SHORT)).ask_claim()
    assert isinstance(answer, Settling)
    assert answer.floor_ms >= old.until_ms


# --- named oddly -------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["\x7f", "a\nb\x00", "\N{GRINNING FACE}" * 100, "\ud83d", "x" * 2_000])
def test_a_process_with_any_label_gets_a_worker_id(server: RedisServer, label: str) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    with snowredis.connect(server.url, pool=name, layout=LAYOUT, label=label) as ids:
        ids.next_id()
        (shown,) = WorkerPool(server.url, name).workers()
    assert len(shown.label) == len(label[:100])


# --- filled ----------------------------------------------------------------------------------------


def test_no_script_walks_far_to_find_a_worker_id_after_a_loss(own_server: RedisServer) -> None:
    """Leases were adopted; none of their worker ids was leased by this server."""
    wide = Layout(timestamp_bits=41, backup_bits=0, worker_bits=12, sequence_bits=10)
    store = new_pool(own_server, replace(LONG, layout=wide))
    client, (key, leases, _), count = own_server.client(), pool_keys(store.config.name), 1_700
    holder(store).claim()
    record = str(client.hget(key, "w:0"))
    client.hset(key, mapping={f"w:{worker}": record for worker in range(count)})
    client.hset(key, mapping={"records": count, "next": 0})
    client.zadd(leases, {str(worker): wall_ms() + 60_000 for worker in range(count)})
    looked_at = []
    newcomer = holder(store)
    while True:
        client.config_resetstat()
        answer = newcomer.ask_claim()
        stats: Any = client.info("commandstats")
        looked_at.append(stats["cmdstat_hexists"]["calls"])
        if not isinstance(answer, Settling):
            break
        assert len(looked_at) < 10
        really_wait(answer.wait_ms)
    assert isinstance(answer, Granted)
    assert answer.worker == count
    assert looked_at == [500, 500, 500, count - 1_500 + 1]
