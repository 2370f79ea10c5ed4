"""Give the leases of killed processes back, in a process of its own.

A server's main process passes on the credentials in its crash records. It imports no Redis client, which its workers
would inherit before gevent has patched the modules that the client uses, and it never waits for Redis.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.lease.model import ClaimRequest, ReleaseRequest, Store
from snowredis.lease.open import open_store
from snowredis.lease.replies import Granted, Released, Seen
from snowredis.lease.stats import WorkerStats
from snowredis.reclaim.credentials import UNKNOWN_WORKER, config_of

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger("snowredis")

# how soon a Redis that does not reply is asked again, for one ttl at most: then the lease has ended by itself
RETRY_S = 0.5
# how long a Redis that does not reply is asked after the end of the process that started this one
ORPHAN_S = 3.0
# the same sys.path as here: on PYTHONPATH, site-packages would come before Python's own modules
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from snowredis.reclaim.reclaimer import main; main()"


def start(leases: list[dict[str, Any]]) -> subprocess.Popen[bytes] | None:
    """Start a process that gives back *leases*, the credentials that CrashRecords.read() returned; None if empty.

    Blocks:
        for some milliseconds, until the process is started. The caller may wait() for it, or reap it.

    Raises:
        OSError: no process can be started; the leases end by their ttl.
    """
    import subprocess

    if not leases:
        return None
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # a Ctrl-C that ends the server must not end this
        start_new_session=True,
    )
    if process.stdin is not None:
        # less than the size of a pipe (64 KiB), so this does not block; not as an argument, which others could read:
        # there are passwords in the URLs
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps({"parent": os.getpid(), "leases": leases}).encode())
    return process


def give_back(credentials: dict[str, Any], parent: int | None = None) -> None:
    """Release one lease. Blocks until Redis replies, for one ttl at most, and for ORPHAN_S after the parent's end.

    Args:
        parent: pid of the parent, which may have ended already; by default that of this process now.

    Raises:
        SnowredisError: Redis refused, or did not reply; the lease ends by its ttl.
    """
    config = config_of(credentials)
    parent, until_s = parent or os.getppid(), time.monotonic() + config.ttl_ms / 1000
    with contextlib.closing(open_store(credentials["store"]["urls"], config)) as store:
        while True:
            try:
                worker = release(store, credentials)
                break
            except StoreUnavailable:
                if os.getppid() != parent:
                    until_s = min(until_s, orphaned_until_s())
                if time.monotonic() > until_s:
                    raise
            time.sleep(RETRY_S)
    if worker is not None:
        log.info("pool %s: gave worker id %d of a killed process back", config.name, worker)


@functools.cache
def orphaned_until_s() -> float:
    """Return, on the monotonic clock, ORPHAN_S after the first call: the same for all leases."""
    return time.monotonic() + ORPHAN_S


def release(store: Store, credentials: dict[str, Any]) -> int | None:
    """Release one lease, in one attempt. Blocks for one round trip to Redis, two for a claim without a reply.

    Returns:
        its worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    now_ms = time.time_ns() // 1_000_000
    worker, renewal_id = credentials["worker"], credentials.get("renewal_id", "")
    if worker == UNKNOWN_WORKER:
        # killed before the reply came: the same claim again has the same result
        claim = ClaimRequest(credentials["token"], now_ms, now_ms, 0, credentials["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        worker, renewal_id = reply.worker, reply.renewal_id
    request = ReleaseRequest(
        worker=worker,
        token=credentials["token"],
        renewal_id=renewal_id,
        pending_renewal_id=credentials.get("pending_renewal_id", ""),
        caller_ms=now_ms,
        marks_ms=tuple(credentials["marks_ms"]),
        stats=WorkerStats.from_text(credentials["stats"]),
        reclaimed=True,
    )
    return worker if isinstance(store.release(request, Seen()), Released) else None


def main() -> None:
    """Give back the leases whose credentials stand on stdin, as JSON, with the pid of the parent."""
    logging.basicConfig(format="snowredis: %(message)s")
    message = json.load(sys.stdin)
    for credentials in message["leases"]:
        try:
            give_back(credentials, message["parent"])
        except SnowredisError as error:
            log.warning("could not give back the lease of a killed process: %s", error)
            if isinstance(error, StoreUnavailable) and os.getppid() != message["parent"]:
                # an attempt for each of the others would take seconds, too
                return
