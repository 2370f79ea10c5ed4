"""Take-over of a lease from a crash record by another process."""

import json
from typing import Any

import pytest

from snowredis.process.names import owner_text
from snowredis.snowflake.crash.record import FORMAT, TEXT_BYTES, Credentials
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.protocol.messages import Terms, WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig

CONFIG = PoolConfig(name="orders")
LAYOUT = CONFIG.layout
NOW_MS = LAYOUT.epoch_ms + 1_000_000


def record() -> Credentials:
    """Return the credentials of a lease of worker 5, as they are read, of whose outage lane 700 ms were used."""
    lanes_ms = (NOW_MS, NOW_MS, NOW_MS, NOW_MS + 10)
    terms = Terms(5, NOW_MS + 30_000, NOW_MS + 86_400_000, "1-ab", "a1", lanes_ms)
    held = HeldLease.granted(terms, CONFIG, "70c3", 1, 0)._replace(pending_renewal_id="b2", clocks_s=(1.5, 2.5))
    read = Credentials.parse(held.credentials(WorkerStats(ids_made=3)).pack())
    assert read is not None
    return read._replace(outage_used_ms=NOW_MS + 710)


def test_the_heir_has_the_rest_of_the_outage_lane_and_no_other_time() -> None:
    taken = HeldLease.taken_over(record(), CONFIG, 7, 3)
    end = LAYOUT.first_tick_from(NOW_MS + 30_000)
    assert taken.lease.opens == (end, end, end, LAYOUT.first_tick_from(NOW_MS + 10))
    assert (taken.lease.worker, taken.lease.until) == (5, end)
    assert (taken.outage_used_ms, taken.lease.outage_until_ms) == (NOW_MS + 710, NOW_MS + 86_400_000)
    # what Redis and a release need is that of the dead process
    assert (taken.token, taken.terms.renewal_id, taken.pending_renewal_id) == ("70c3", "a1", "b2")
    assert taken.terms.lanes_ms == (NOW_MS, NOW_MS, NOW_MS, NOW_MS + 10)
    assert (taken.serial, taken.generation, taken.clocks_s) == (7, 3, (1.5, 2.5))


def test_what_is_read_is_what_was_written() -> None:
    written = record()
    assert Credentials.parse(written.pack()) == written
    assert written.stats == WorkerStats(ids_made=3)


def test_a_text_of_another_version_is_no_record() -> None:
    number, *fields = json.loads(record().pack())
    assert number == FORMAT
    assert Credentials.parse(json.dumps([FORMAT - 1, *fields]).encode()) is None
    # the form before this one
    assert Credentials.parse(json.dumps({"worker": 5, "token": "70c3"}).encode()) is None


@pytest.mark.parametrize("damage", [b"", b"[1]", b"{", b"\xff", json.dumps([FORMAT, *range(10)]).encode()])
def test_a_damaged_text_is_an_error_that_is_expected(damage: bytes) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        Credentials.parse(damage)


def test_the_form_of_a_text_changes_with_its_number() -> None:
    """Change FORMAT, and then this, with the fields."""
    fields = "token terms pending_renewal_id owner clocks_s stats released inode outage_used_ms end"
    assert (FORMAT, Credentials._fields) == (1, tuple(fields.split()))
    assert Terms._fields == ("worker", "until_ms", "outage_until_ms", "incarnation", "renewal_id", "lanes_ms")
    assert WorkerStats._fields == ("ids_made", "ids_per_second", "clock_offset_ms", "namespace", "clock_backs")


def test_every_record_has_room() -> None:
    terms = Terms(2**22, 10**14, 10**14, "f" * 60, "f" * 32, (10**14,) * 64)
    more: dict[str, Any] = {"clocks_s": (1e9 + 0.1, 1e9 + 0.1), "inode": "f" * 40}
    longest = Credentials("f" * 32, terms, "f" * 32, **more, stats=WorkerStats(*[10**18] * 5))
    claim = Credentials("f" * 32, owner=owner_text("\N{GRINNING FACE}" * 200, 1, '"' * 200, generator="f" * 12))
    for each in (longest, claim._replace(inode="f" * 40)):
        assert len(each.pack()) < TEXT_BYTES
