"""The protocol on other versions of Redis and on Valkey: features that the scripts need, and texts that differ.

Runs on each program that `scripts/servers.py get` has fetched. `scripts/servers.py test` runs all other tests of leases
and failovers on them, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import ServerUnidentified, StoreReadOnly
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Created, Lost, PoolFull, Renewed, Settling
from tests.snowflake.lease.conftest import wall_ms
from tests.support.holder import Holder, fresh_hex
from tests.support.other_servers import other_servers
from tests.support.servers import RedisServer, redis_server

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=2, sequence_bits=10)
# survives the restart of a server on a busy machine
CONFIG = PoolConfig(name="p", layout=LAYOUT, ttl_ms=3_000, max_clock_lead_ms=60, redis_skew_ms=60)

PROGRAMS = other_servers()
if not PROGRAMS:
    pytest.skip("no other servers; get them with scripts/servers.py get", allow_module_level=True)


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.name)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("o"), program=request.param) as running:
        yield running


def new_store(server: RedisServer, config: PoolConfig = CONFIG) -> RedisStore:
    store = RedisStore(server.url, replace(config, name=f"p{fresh_hex()[-6:]}"))
    assert isinstance(store.create(wall_ms()), Created)
    return store


def identity_in_scripts(server: RedisServer) -> list[str]:
    """Return run_id and master_replid, as a script reads them."""
    script = "return {redis.call('INFO', 'server'), redis.call('INFO', 'replication')}"
    sections = server.client().eval(script, 0)
    assert isinstance(sections, list)
    return re.findall(r"^(?:run_id|master_replid):([0-9a-f]{40})\r$", "".join(sections), re.MULTILINE)


def test_a_worker_id_is_claimed_renewed_released_and_claimed_again_above_what_was_granted(other: RedisServer) -> None:
    store = new_store(other)
    first = Holder(store, wall_ms).claim()
    replayed = fresh_hex()
    for _ in range(2):
        assert isinstance(first.ask_renew(replayed), Renewed)
    assert Holder(store, wall_ms).claim().worker != first.worker
    assert first.release("10")
    assert isinstance(first.ask_renew(), Lost)
    heirs = [Holder(store, wall_ms).claim() for _ in range(3)]
    heir = next(heir for heir in heirs if heir.worker == first.worker)
    assert heir.lanes_ms == (first.until_ms, first.lanes_ms[1])
    assert isinstance(Holder(store, wall_ms).ask_claim(), PoolFull)


def test_scripts_see_which_server_they_run_on_and_that_it_was_promoted(other: RedisServer) -> None:
    before = identity_in_scripts(other)
    assert len(before) == 2
    assert identity_in_scripts(other) == before
    client = other.client()
    # a port that nobody listens on
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreReadOnly):
        RedisStore(other.url, CONFIG).create(wall_ms())
    client.execute_command("REPLICAOF", "NO", "ONE")
    after = identity_in_scripts(other)
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_restart_from_a_snapshot_keeps_newcomers_waiting_and_holders_going(other: RedisServer) -> None:
    store = new_store(other)
    living = Holder(store, wall_ms).claim()
    other.save()
    unknown = Holder(store, wall_ms).claim()
    began_ms = wall_ms()
    other.restart()
    store = RedisStore(other.url, store.config)
    newcomer = Holder(store, wall_ms).ask_claim()
    assert isinstance(newcomer, Settling)
    assert newcomer.floor_ms >= began_ms + CONFIG.floor_ms
    for holder in (living, unknown):
        holder.store = store
        answer = holder.ask_renew()
        # adopted
        assert isinstance(answer, Renewed)
        assert answer.adopted


def test_a_user_without_info_is_refused_unless_the_pool_does_without(other: RedisServer) -> None:
    other.client().execute_command("ACL", "SETUSER", "app", "on", ">pw", "~snowredis:*", "+@all", "-info")
    url = f"unix://app:pw@{other.socket}"
    with pytest.raises(ServerUnidentified, match="refuses INFO inside scripts"):
        RedisStore(url, replace(CONFIG, name="blind")).create(wall_ms())
    for durability in ("assured", "none"):
        store = RedisStore(url, replace(CONFIG, name=durability, durability=durability))
        assert isinstance(store.create(wall_ms()), Created)
        assert isinstance(Holder(store, wall_ms).claim().ask_renew(), Renewed)
