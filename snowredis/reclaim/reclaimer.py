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
from snowredis.lease.open import open_store
from snowredis.reclaim.credentials import config_of, release

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
