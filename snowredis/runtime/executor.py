"""Give the leases of killed processes back, in a process of its own: ``python -m snowredis.runtime.executor``.

A server's main process hands over what wills say and goes on: it imports no Redis client, which its
workers would inherit before gevent has patched what that is made of, and it waits for no Redis.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.lease.model import PoolConfig, ReleaseRequest, Seen, Store

log = logging.getLogger("snowredis")

# a Redis that is away is asked again so often, for one ttl at most: then the lease is over by itself
RETRY_S = 0.5


def start(rights: list[dict[str, Any]]) -> subprocess.Popen[bytes] | None:
    """Have *rights*, which Wills.read() said, given back. None if there are none.

    Blocks:
        for some milliseconds, until the process is started. The caller may wait() for it, or reap it.

    Raises:
        OSError: no process can be started; the leases end by their ttl.
    """
    if not rights:
        return None
    package_home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package_home, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        # a Ctrl-C that ends the server must not end this
        start_new_session=True,
    )
    if process.stdin is not None:
        # below what a pipe holds (64 KiB), so nobody waits; in no argument list, since passwords are in the URLs
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(rights).encode())
    return process


def execute(right: dict[str, Any]) -> None:
    """Release one lease. Blocks until Redis answered, for one ttl at most. Raises SnowredisError."""
    settings = right["store"]["config"]
    config = PoolConfig(
        **settings | {"layout": resolve_layout(settings["layout"]), "share": tuple(settings["share"])}
    )
    request = ReleaseRequest(
        worker=right["worker"],
        token=right["token"],
        tip=right["tip"],
        sent=right["sent"],
        caller_ms=time.time_ns() // 1_000_000,
        marks_ms=tuple(right["marks_ms"]),
        stats=right["stats"],
    )
    until_s = time.monotonic() + config.ttl_ms / 1000
    with contextlib.closing(open_store(right["store"]["urls"], config)) as store:
        while True:
            try:
                answer = store.release(request, Seen())
                break
            except StoreUnavailable:
                if time.monotonic() > until_s:
                    raise
            time.sleep(RETRY_S)
    if answer.status == "ok":
        log.info("pool %s: gave worker id %d of a killed process back", config.name, request.worker)


def open_store(urls: Sequence[str], config: PoolConfig) -> Store:
    """The store that a generator of these URLs had."""
    from snowredis.lease.masters import Masters
    from snowredis.lease.redis_store import RedisStore

    if len(urls) == 1:
        return RedisStore.from_url(urls[0], config)
    shares = ((url, (i, len(urls))) for i, url in enumerate(urls))
    return Masters([RedisStore.from_url(url, replace(config, share=share)) for url, share in shares], config)


def main() -> None:
    logging.basicConfig(format="snowredis: %(message)s")
    for right in json.load(sys.stdin):
        try:
            execute(right)
        except SnowredisError as error:
            log.warning("could not give back what a killed process held: %s", error)


if __name__ == "__main__":
    main()
