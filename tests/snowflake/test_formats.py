"""The formats of what is stored in Redis: versions with another one refuse it, and a change needs a new number."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from snowredis import WorkerPool
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch
from snowredis.numbers import DatedGenerator, NumbersClosed, create_tag, open_tag
from snowredis.numbers.segments import open_generator
from snowredis.numbers.stores import FORMAT as TAG_FORMAT
from snowredis.numbers.stores import tag_keys
from snowredis.signatures import FORMATS
from snowredis.snowflake.protocol.administration import PoolAdministration
from snowredis.snowflake.protocol.messages import Lost, Seen, WorkerStats
from snowredis.snowflake.protocol.pool_config import FORMAT, PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from tests.snowflake.protocol.conftest import really_wait, wall_ms
from tests.support.formats import shape_of
from tests.support.holder import Holder, create
from tests.support.records import change_record
from tests.support.servers import RedisServer

HERE = Path(__file__).parent
LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
CONFIG = PoolConfig(name="orders", layout=LAYOUT, ttl_ms=30_000)
WIDER = Layout(timestamp_bits=41, backup_bits=1, worker_bits=8, sequence_bits=13)


@pytest.fixture
def client(own_server: RedisServer) -> Iterator[redis.Redis]:
    with own_server.client() as client:
        yield client


# --- the forms ----------------------------------------------------------------------------------------


def written_of_a_pool(server: RedisServer) -> None:
    """Let the scripts of this version write all that they write of a pool."""
    config = replace(CONFIG, outage_reserve_ms=10_000_000)
    store = PoolAdministration(server.url, config)
    create(store, wall_ms())
    kept, killed, released = (Holder(store, wall_ms).claim() for _ in range(3))
    kept.ask_renew()
    released.release()
    assert Holder(store, wall_ms, token=killed.token).claim().worker == killed.worker
    # it ends after the last look at ended leases; its grants have ended, too
    really_wait(2)
    marks = dict.fromkeys(("until_ms", "outage_ms"), wall_ms() - 1)
    change_record(server.client(), "orders", killed.worker, lease_end_ms=wall_ms(), **marks)
    server.client().delete(pool_keys("orders")[1])
    assert Holder(store, wall_ms).claim().worker == killed.worker
    assert isinstance(killed.ask_renew(), Lost)
    with pytest.raises(LayoutMismatch):
        Holder(PoolAdministration(server.url, replace(config, ttl_ms=60_000)), wall_ms).claim()
    server.client().hset(pool_keys("orders")[0], "run_id", "another")
    kept.ask_renew()
    kept.seen = Seen(kept.seen.incarnation, 10**6)
    assert kept.ask_renew().alarm
    store.delete(wall_ms())
    deleted = PoolAdministration(server.url, replace(config, name="deleted"))
    create(deleted, wall_ms())
    Holder(deleted, wall_ms).claim().release()
    WorkerPool(server.url, "deleted").delete()
    changed = PoolAdministration(server.url, replace(config, name="changed"))
    create(changed, wall_ms())
    changed.delete(wall_ms())
    create(PoolAdministration(server.url, replace(changed.config, layout=WIDER)), wall_ms())


def written_of_a_tag(server: RedisServer) -> None:
    create_tag(server.url, "bills", maximum=1_000)
    server.client().hset(tag_keys("bills")[0], "identity", "another")
    with open_generator(server.url, tag="bills") as ids, pytest.raises(NumbersClosed):
        ids.next_id()
    open_tag(server.url, "bills", 500)
    with open_generator(server.url, tag="bills") as ids:
        ids.next_id()
    create_tag(server.url, "receipts", period="day")
    with DatedGenerator("receipts", server.url) as dated:
        dated.next_id()
        open_tag(server.url, "receipts", 50)
        dated.next_id()


FORMS: dict[str, tuple[int, Callable[[RedisServer], None]]] = {
    "pool": (FORMAT, written_of_a_pool),
    "tag": (TAG_FORMAT, written_of_a_tag),
}


@pytest.mark.parametrize("kind", FORMS)
def test_whoever_changes_what_is_stored_gives_it_a_new_format(own_server: RedisServer, client: Any, kind: str) -> None:
    """If this fails, raise the format, add it to FORMATS and to docs/how-to/upgrade.md, and write the form of it anew.

    The form of a format that was released is never changed: after a rollback, older processes meet what newer ones
    wrote.
    """
    number, write = FORMS[kind]
    write(own_server)
    found: dict[str, Any] = {"keys": shape_of(client)}
    if kind == "pool":
        # numbers look alike: in a record, their order is part of the form
        found["record"] = list(LeaseRecord._fields)
        found["stats"] = list(WorkerStats._fields)
    path = HERE / "forms" / f"{kind}_{number}.json"
    assert path.is_file(), f"the form of this format is not written down: {json.dumps(found, indent=2)}"
    assert found == json.loads(path.read_text())


def test_the_fields_of_a_record_have_their_places() -> None:
    record = LeaseRecord("aa", "1-ab", "bb", 11, 12, (1, 2, 3), 13, "cc", 14, 15, WorkerStats(1, 2, -3, 4, 5), "{|}")
    assert record.pack() == "aa|1-ab|bb|11|12|1,2,3|13|cc|14|15|1,2,-3,4,5|{|}"
    assert LeaseRecord.parse(record.pack()) == record
    # nor has any script written these
    wrong: list[Any] = [{"lease_end_ms": "9" * 5_000}, {"until_ms": "٣"}, {"token_hash": "xyz"}, {"lanes_ms": "1;2"}]
    for fields in wrong:
        assert LeaseRecord.parse(record._replace(**fields).pack()) is None
    odd: Any = WorkerStats("1-2", "--", "-", 3)  # type: ignore[arg-type]
    assert LeaseRecord.parse(record._replace(stats=odd).pack()) == record._replace(stats=WorkerStats())


def test_every_format_is_in_the_table_of_the_page_on_upgrades() -> None:
    page = (HERE.parents[1] / "docs" / "how-to" / "upgrade.md").read_text()
    for number, versions in FORMATS.items():
        assert any(
            line.startswith(f"| {number}") and versions.removeprefix("snowredis ") in line for line in page.splitlines()
        )
    assert max(FORMATS) >= FORMAT
