"""The format of a pool: versions with another one refuse it, and a change of it needs a new number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

import snowredis
from snowredis import WorkerPool
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch
from snowredis.signatures import FORMATS
from snowredis.snowflake.administration import PoolAdministration
from snowredis.snowflake.protocol import FORMAT, PoolConfig, pool_keys
from snowredis.snowflake.replies import Created
from tests.lease.conftest import really_wait, wall_ms
from tests.support.formats import shape_of
from tests.support.holder import Holder, fresh_hex
from tests.support.servers import RedisServer

HERE = Path(__file__).parent
LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
CONFIG = PoolConfig(name="orders", layout=LAYOUT, ttl_ms=30_000)
# format 1 had no number
SIGNATURE_1 = CONFIG.signature.partition(" ")[2]


class Format1:
    """Runs the scripts that wrote format 1."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.token, self.renewal = fresh_hex(), fresh_hex()

    def run(self, name: str, *args: object) -> list[str]:
        source = "\n".join((HERE / "format_1" / f"{part}.lua").read_text() for part in ("common", name))
        constants = (30_000, 2_500, 2_500, 0, 0)
        common = (SIGNATURE_1, *constants, "", 0, fresh_hex(), wall_ms(), 1_000)
        reply: list[str] = self._client.eval(source, 3, *pool_keys("orders"), *common, *args)  # type: ignore[arg-type]
        return reply

    def claim(self) -> list[str]:
        return self.run("claim", self.token, 16, 2, wall_ms(), 0, '{"host":"old"}')


@pytest.fixture
def client(own_server: RedisServer) -> Iterator[redis.Redis]:
    with own_server.client() as client:
        yield client


def test_a_pool_of_an_earlier_format_is_refused_and_not_touched(own_server: RedisServer, client: Any) -> None:
    old = Format1(client)
    assert old.run("create")[0] == "ok"
    assert old.claim()[0] == "ok"
    before = client.hgetall(pool_keys("orders")[0])
    ids = snowredis.connect(own_server.url, pool="orders", layout=LAYOUT, claim_timeout=0)
    with pytest.raises(LayoutMismatch, match="stored in format 1, which development versions before") as caught:
        ids.next_id()
    assert f"reads format {FORMAT}" in str(caught.value)
    assert FORMATS[FORMAT] in str(caught.value)
    assert "docs/how-to/upgrade.md" in str(caught.value)
    assert client.hgetall(pool_keys("orders")[0]) == before


def test_an_earlier_version_is_refused_by_a_pool_of_this_format(own_server: RedisServer, client: Any) -> None:
    assert isinstance(PoolAdministration(own_server.url, CONFIG).create(wall_ms()), Created)
    before = client.hgetall(pool_keys("orders")[0])
    status, stored = Format1(client).claim()[:2]
    assert (status, stored) == ("signature", CONFIG.signature)
    assert client.hgetall(pool_keys("orders")[0]) == before


def test_a_pool_of_an_earlier_format_is_deleted_and_leaves_its_floor(own_server: RedisServer, client: Any) -> None:
    old = Format1(client)
    old.run("create")
    until_ms = int(old.claim()[7])
    assert until_ms > wall_ms()
    WorkerPool(own_server.url, "orders").delete(force=True)
    created = PoolAdministration(own_server.url, CONFIG).create(wall_ms())
    assert isinstance(created, Created)
    assert created.floor_ms >= until_ms


def written(own_server: RedisServer, client: Any) -> dict[str, Any]:
    """Let the scripts of this version write all that they write of a pool, and return its shape."""
    config = replace(CONFIG, outage_reserve_ms=10_000_000)
    store = PoolAdministration(own_server.url, config)
    store.create(wall_ms())
    kept, released = (Holder(store, wall_ms).claim() for _ in range(2))
    kept.ask_renew()
    released.release(wall_ms(), 0)
    # so that the end of the released lease has passed
    really_wait(5)
    store.note_number(7, wall_ms())
    with pytest.raises(LayoutMismatch):
        Holder(PoolAdministration(own_server.url, replace(config, ttl_ms=60_000)), wall_ms).claim()
    store.change_layout(Layout(timestamp_bits=41, backup_bits=2, worker_bits=3), wall_ms() + 10_000_000, wall_ms())
    PoolAdministration(own_server.url, replace(config, name="deleted")).create(wall_ms())
    WorkerPool(own_server.url, "deleted").delete()
    shape = shape_of(client)
    client.flushall()
    return shape


def test_whoever_changes_what_a_pool_stores_gives_it_a_new_format(own_server: RedisServer, client: Any) -> None:
    """If this fails, raise FORMAT, add it to FORMATS and to docs/how-to/upgrade.md, and write the shape of it here.

    A field that older processes may ignore, and whose absence newer ones understand, needs no new number: say so in
    upgrade.md, and write the shape anew.
    """
    path = HERE / f"format_{FORMAT}.json"
    found = written(own_server, client)
    for key, shape in json.loads(path.read_text()).items():
        assert found.pop(key) == shape, key
    assert not found


def test_every_format_is_in_the_table_of_the_page_on_upgrades() -> None:
    page = (HERE.parents[1] / "docs" / "how-to" / "upgrade.md").read_text()
    for number, versions in FORMATS.items():
        assert any(
            line.startswith(f"| {number}") and versions.removeprefix("snowredis ") in line for line in page.splitlines()
        )
    assert max(FORMATS) >= FORMAT
