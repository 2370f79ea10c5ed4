"""One process of `snowredis gameday`: make ids by a lease, and beside them ids of a home-made registry.

Run as ``python -m snowredis.cli.gameday_process POOL TTL_S DURABILITY PATH`` with SNOWREDIS_URL. Ids are in PATH.lease
and PATH.setnx, about 1,000 a second of each, until stdin ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import snowredis
from snowredis.monitor.gameday import SetNxRegistry

# the ids of this time are made at once
_STEP_MS = 10


def _make(make: Callable[[], list[int]], path: str, stop: threading.Event) -> None:
    """Write ids to *path* until *stop*."""
    with Path(path).open("wb") as file:
        while not stop.wait(_STEP_MS / 1000):
            with contextlib.suppress(snowredis.SnowredisError):
                file.write(array("q", make()))


def main(pool: str, ttl_s: str, durability: Any, path: str) -> None:
    """Make ids until stdin ends."""
    url, stop = os.environ["SNOWREDIS_URL"], threading.Event()
    registry = SetNxRegistry(url, pool, float(ttl_s))
    # not as a context manager, which claims at once and so raises while Redis is unavailable
    ids = snowredis.connect(url, pool=pool, ttl=float(ttl_s), durability=durability, label="gameday")
    threads = [
        threading.Thread(target=_make, args=(make, file, stop), daemon=True)
        for make, file in ((lambda: ids.next_ids(_STEP_MS), f"{path}.lease"), (registry.ids, f"{path}.setnx"))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join(5)
    ids.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
