#!/usr/bin/env python3
"""Register many shards from many processes at once, with kills, while the registry's Redis forgets: all numbers differ.

    scripts/shard_numbers.py                                    1,000 shards, 16 processes, 60 kills, 6 losses
    scripts/shard_numbers.py --shards 200 --seed 3 --limit 60

A loss is a registry that is deleted, or a server that is killed and starts from an old snapshot; after each, every pool
confirms its number and the registry is opened, as a person would. Checked: no two shards ever used one number, every
shard ends with one, and no id was made twice. Needs a redis-server.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.registry.fleet import Fleet
from tests.support.servers import redis_server


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--losses", type=int, default=6)
    parser.add_argument("--servers", type=int, default=4, help="how many servers the pools are on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds until it gives up")
    options = parser.parse_args()
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s")))
        servers = []
        for number in range(options.servers + 1):
            place = directory / str(number)
            place.mkdir()
            servers.append(stack.enter_context(redis_server(place)))
        fleet = Fleet(
            directory, servers[0], servers[1:], options.shards, options.processes, random.Random(options.seed)
        )
        losses = ["wipe", "snapshot"] * options.losses
        fleet.run(kills=options.kills, losses=losses[: options.losses], limit_s=options.limit)
        wrong = fleet.problems()
    taken_s = time.monotonic() - began_s
    print(
        f"{options.shards:,} shards from {options.processes} processes in {taken_s:.0f} s: {fleet.kills} kills, "
        f"{len(fleet.losses)} losses ({', '.join(fleet.losses)}), {len(fleet.ids):,} ids; "
        f"{len(fleet.used):,} different numbers, {len(wrong)} problems"
    )
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
