"""Take-over of a lease from a crash record by another process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snowredis.snowflake.crash_record import lease_credentials
from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import NO_STATS, PoolConfig
from snowredis.snowflake.replies import Granted

CONFIG = PoolConfig(name="orders")
NOW_MS = CONFIG.layout.epoch_ms + 1_000_000


def record(**changes: Any) -> dict[str, Any]:
    """Return the credentials of a lease of worker 5, as they are read, of which 700 ms of the first lane were used."""
    lanes_ms = (NOW_MS, NOW_MS, NOW_MS, NOW_MS + 10)
    granted = Granted(0, "i", 0, 0, None, 5, NOW_MS + 30_000, lanes_ms, "a1", NOW_MS + 86_400_000)
    held = HeldLease.granted(granted, CONFIG, "70c3", 1, 0)._replace(pending_renewal_id="b2", clocks_s=(1.5, 2.5))
    credentials: dict[str, Any] = json.loads(json.dumps(lease_credentials(held, NO_STATS)))
    return credentials | {"marks_ms": [NOW_MS + 700, 0, 0, 0]} | changes


def test_the_heir_goes_on_behind_what_was_used() -> None:
    taken = HeldLease.taken_over(record(), CONFIG, 7, 3)
    first = CONFIG.layout.first_tick_from(NOW_MS)
    assert taken.lease.opens == (first + 700, first, first, first + 10)
    assert (taken.lease.worker, taken.lease.until_ms) == (5, NOW_MS + 30_000)
    assert taken.lease.outage_until_ms == NOW_MS + 86_400_000
    # what Redis and a release need is that of the dead process
    assert (taken.token, taken.renewal_id, taken.pending_renewal_id) == ("70c3", "a1", "b2")
    assert taken.lanes_ms == (NOW_MS, NOW_MS, NOW_MS, NOW_MS + 10)
    assert (taken.serial, taken.generation, taken.clocks_s) == (7, 3, (1.5, 2.5))


@pytest.mark.parametrize(
    "damage", [{"worker": "x"}, {"lanes_ms": None}, {"marks_ms": ["a"]}, {"clocks_s": []}, {"until_ms": None}]
)
def test_a_damaged_record_is_an_error_that_is_expected(damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        HeldLease.taken_over(record(**damage), CONFIG, 7, 3)
