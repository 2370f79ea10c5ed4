"""Shards register at once, with kills, while the Redis of the registry forgets: all numbers differ."""

from __future__ import annotations

import random
from pathlib import Path

from tests.registry.fleet import Fleet
from tests.support.servers import RedisServer


def test_shards_registered_at_once_have_different_numbers_whatever_redis_forgets(
    tmp_path: Path, own_server: RedisServer, server: RedisServer
) -> None:
    fleet = Fleet(tmp_path, own_server, [server], shards=40, processes=2, random=random.Random(7))
    fleet.run(kills=1, losses=["wipe", "snapshot"], limit_s=60)
    assert fleet.problems() == []
    assert (len(fleet.used), fleet.kills, sorted(fleet.losses)) == (40, 1, ["snapshot", "wipe"])
