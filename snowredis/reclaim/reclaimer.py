"""Give the leases of killed processes back, in a process of its own.

A server's main process hands over what crash_records say and goes on: it imports no Redis client, which its
workers would inherit before gevent has patched what that is made of, and it waits for no Redis.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import time
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, Store
from snowredis.lease.open import open_store
from snowredis.lease.replies import Granted, Released, Seen
from snowredis.lease.stats import WorkerStats
from snowredis.reclaim.crash_record import UNKNOWN_WORKER

log = logging.getLogger("snowredis")

# a Redis that is away is asked again so often, for one ttl at most: then the lease is over by itself
RETRY_S = 0.5
# imports from where this process does: site-packages on PYTHONPATH would come before Python's own modules
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from snowredis.reclaim.reclaimer import main; main()"


def start(rights: list[dict[str, Any]]) -> subprocess.Popen[bytes] | None:
    """Have *rights*, which CrashRecords.read() said, given back. None if there are none.

    Blocks:
        for some milliseconds, until the process is started. The caller may wait() for it, or reap it.

    Raises:
        OSError: no process can be started; the leases end by their ttl.
    """
    if not rights:
        return None
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
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
    until_s = time.monotonic() + config.ttl_ms / 1000
    with contextlib.closing(open_store(right["store"]["urls"], config)) as store:
        while True:
            try:
                worker = _release(store, right)
                break
            except StoreUnavailable:
                if time.monotonic() > until_s:
                    raise
            time.sleep(RETRY_S)
    if worker is not None:
        log.info("pool %s: gave worker id %d of a killed process back", config.name, worker)


def _release(store: Store, right: dict[str, Any]) -> int | None:
    """The worker id that was given back, if it was."""
    now_ms = time.time_ns() // 1_000_000
    worker, renewal_id = right["worker"], right.get("renewal_id", "")
    if worker == UNKNOWN_WORKER:
        # killed before the answer came: the same claim again is answered with the same worker id
        claim = ClaimRequest(right["token"], now_ms, now_ms, 0, right["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        worker, renewal_id = reply.worker, reply.renewal_id
    release = ReleaseRequest(
        worker=worker,
        token=right["token"],
        renewal_id=renewal_id,
        pending_renewal_id=right.get("pending_renewal_id", ""),
        caller_ms=now_ms,
        marks_ms=tuple(right["marks_ms"]),
        stats=WorkerStats.from_text(right["stats"]),
    )
    return worker if isinstance(store.release(release, Seen()), Released) else None


def main() -> None:
    logging.basicConfig(format="snowredis: %(message)s")
    for right in json.load(sys.stdin):
        try:
            execute(right)
        except SnowredisError as error:
            log.warning("could not give back what a killed process held: %s", error)
