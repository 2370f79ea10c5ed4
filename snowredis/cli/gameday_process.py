"""One process of `snowredis gameday`: make ids by a lease, and beside them ids of a home-made registry.

Run as ``python -m snowredis.cli.gameday_process POOL TTL_S DURABILITY PATH`` with SNOWREDIS_URL. Ids are in PATH.lease
and PATH.setnx, about 1,000 a second of each. At the end of stdin it writes to PATH.json how long it waited for ids.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import snowredis
from snowredis.monitor.gameday import SetNxRegistry

# the ids of this time are made at once
_STEP_MS = 10


def _make(make: Callable[[], list[int]], path: Path, stop: threading.Event, seen: dict[str, float]) -> None:
    """Write ids to *path* until *stop*; note after which time the first one was made, and the longest pause."""
    began_s, last_s = time.monotonic(), 0.0
    with path.open("wb") as file:
        while not stop.wait(_STEP_MS / 1000):
            try:
                ids = make()
            except snowredis.SnowredisError:
                continue
            now_s = time.monotonic()
            seen.setdefault("first_s", now_s - began_s)
            seen["pause_s"] = max(seen.get("pause_s", 0.0), now_s - (last_s or now_s))
            last_s = now_s
            file.write(array("q", ids))


def main(pool: str, ttl_s: str, durability: Any, path: str) -> None:
    """Make ids until stdin ends."""
    url, stop = os.environ["SNOWREDIS_URL"], threading.Event()
    registry = SetNxRegistry(url, pool, float(ttl_s))
    seen: dict[str, dict[str, float]] = {"lease": {}, "setnx": {}}
    # not as a context manager, which would claim here: the time of the first id is measured
    ids = snowredis.connect(url, pool=pool, ttl=float(ttl_s), durability=durability, label="gameday")
    makers: dict[str, Callable[[], list[int]]] = {"lease": lambda: ids.next_ids(_STEP_MS), "setnx": registry.ids}
    threads = [
        threading.Thread(target=_make, args=(make, Path(f"{path}.{name}"), stop, seen[name]), daemon=True)
        for name, make in makers.items()
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join(5)
    ids.close()
    registry.close()
    Path(f"{path}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
