"""Pools that a person deleted, edited or filled by hand, in a real Redis."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from snowredis import WorkerPool
from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.snowflake.protocol.messages import Granted, Renewed, Settling
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.snowflake.protocol.conftest import holder, new_pool, really_wait, wall_ms
from tests.support.holder import Holder, create, fresh_hex
from tests.support.servers import RedisServer

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
LONG = PoolConfig(name="long", layout=LAYOUT, ttl_ms=30_000)


# --- deleted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["hdel", "zadd", "hset", "xadd", "unlink", "hincrby"])
def test_a_user_without_one_right_leaves_a_whole_pool_or_none_and_what_a_deleted_pool_left(
    server: RedisServer, refused: str
) -> None:
    client = server.client()
    client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">x", "~*", "+@all", f"-{refused}")
    config = replace(LONG, name=f"poor{fresh_hex()[-6:]}")
    poor, rich = RedisStore(server.url, config), RedisStore(server.url, config)
    poor._client = client.from_url(server.url, username="app", password="x")
    key = pool_keys(config.name)[0]
    with contextlib.suppress(StoreUnavailable):
        create(poor, wall_ms())
    with contextlib.suppress(StoreUnavailable):
        holder(poor).ask_claim()
    fields: Any = client.hgetall(key)
    whole = {"signature", "start", "lost_at", "is_new", "top", "incarnation", "run_id", "version", "last", "records"}
    assert not fields or whole <= fields.keys()
    # whoever may do everything goes on
    create(rich, wall_ms())
    assert isinstance(holder(rich).ask_claim(), Granted | Settling)
    client.delete(*pool_keys(config.name))
    create(rich, wall_ms())
    holder(rich).claim().release("11")
    done = WorkerPool(server.url, config.name).delete()
    with contextlib.suppress(StoreUnavailable):
        holder(poor).ask_claim()
    reply = holder(rich).settling()
    # nothing begins before what was granted has ended
    assert reply.floor_ms >= done.end_ms


# --- edited by hand --------------------------------------------------------------------------------

EDITS = {
    "start": ["soon", "", "-1", "1e3", "9" * 16, "nan"],
    "lost_at": ["then"],
    "swept": ["yes"],
    "top": ["9" * 16],
    "version": ["x", "1.5"],
    "last": ["\x1b[31m"],
    "records": ["many"],
    "next": ["0x10", "-2"],
    "incarnation": ["", "here", "12", "9" * 20 + "-ab"],
}


def calls(store: RedisStore, living: Holder) -> list[Callable[[], object]]:
    return [holder(store).ask_claim, living.ask_renew, living.release, lambda: create(store, wall_ms())]


@pytest.mark.parametrize(("field", "text"), [(field, text) for field in EDITS for text in (*EDITS[field], None)])
def test_a_field_that_no_script_wrote_is_named_and_nothing_changes(
    server: RedisServer, field: str, text: str | None
) -> None:
    store = new_pool(server, LONG)
    client, (key, _, _) = server.client(), pool_keys(store.config.name)
    living = holder(store).claim()
    client.hdel(key, field) if text is None else client.hset(key, field, text)
    before = client.hgetall(key)
    for call in calls(store, living):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert caught.value.code == "broken"
        assert f"its field {field!r} holds {(text or '').replace(chr(27), '?')!r}," in str(caught.value)
        assert f"snowredis pool delete {store.config.name}" in str(caught.value)
        assert str(caught.value).isprintable()
    assert client.hgetall(key) == before
    # as it says
    pool = WorkerPool(server.url, store.config.name)
    with pytest.raises(ConfigError, match=r"nothing was deleted\. Remove it as if Redis had lost it: redis-cli DEL"):
        pool.delete(force=True)
    assert client.hgetall(key) == before
    client.delete(*pool_keys(pool.name))
    assert living.ask_renew().adopted


@pytest.mark.parametrize("text", ["", "a|b", "{}", "|" * 9, "a|1-b||5|5|" + "9" * 400 + "|1|1|0|{}"])
def test_a_record_that_no_script_wrote_is_named_to_its_holder_and_others_are_served(
    server: RedisServer, text: str
) -> None:
    store = new_pool(server, LONG)
    living, other = holder(store).claim(), holder(store).claim()
    server.client().hset(pool_keys(store.config.name)[0], "w:0", text)
    for call in (living.ask_renew, living.release):
        with pytest.raises(StoreUnavailable, match="field 'w:0'"):
            call()
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
        with pytest.raises(StoreUnavailable, match="field 'w:0'"):
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


@pytest.mark.parametrize("signature", ["layout=none", "", "nonsense \x1b", f"x {LONG.signature} ttl_ms=1"])
def test_a_pool_with_a_signature_that_no_script_wrote_is_removed_as_if_it_was_lost(
    server: RedisServer, signature: str
) -> None:
    store = new_pool(server, LONG)
    old = holder(store).claim()
    pool = WorkerPool(server.url, store.config.name)
    server.client().hset(pool_keys(pool.name)[0], "signature", signature)
    with pytest.raises(ConfigError, match="nothing was deleted"):
        pool.delete(force=True)
    assert server.client().delete(*pool_keys(pool.name))
    assert holder(store).settling().floor_ms >= old.until_ms


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
    assert answer.terms.worker == count
    assert looked_at == [500, 500, 500, count - 1_500 + 1]
