"""Give the leases of killed processes back, in a process of its own.

A server's main process passes on the credentials in its crash records. It imports no Redis client, which its workers
would inherit before gevent has patched the modules that the client uses, and it never waits for Redis. Processes that
are killed at about the same time need one such process, not one each: it takes more credentials until it ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.snowflake.crash_record import config_of, release
from snowredis.snowflake.open import open_store

if TYPE_CHECKING:
    import subprocess

    from snowredis.snowflake.protocol import Store

log = logging.getLogger("snowredis")

# how soon a Redis that does not reply is asked again, for one ttl at most: then the lease has ended by itself
RETRY_S = 0.5
# how long a Redis that does not reply is asked after the end of the process that started this one
ORPHAN_S = 3.0
# how long it waits for more credentials when it has nothing left to do
LINGER_S = 0.5
# the same sys.path as here: on PYTHONPATH, site-packages would come before Python's own modules
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from snowredis.snowflake.reclaimer import main; main()"


class Reclaimer:
    """A process that gives leases back, as the process that started it sees it.

    Blocks:
        for some milliseconds, until the process is started. The caller may wait() for it, or reap it.

    Raises:
        OSError: no process can be started; the leases end by their ttl.

    Attributes:
        process: the process.
    """

    def __init__(self) -> None:
        import subprocess

        ours, theirs = socket.socketpair()
        # written to as a file: gevent may have patched the methods of sockets
        self._descriptor = ours.detach()
        os.set_blocking(self._descriptor, False)
        try:
            with theirs:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *map(str, sys.path)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    # a Ctrl-C that ends the server must not end this
                    start_new_session=True,
                )
        except BaseException:
            self.close()
            raise

    def take(self, leases: list[dict[str, Any]]) -> bool:
        """Pass *leases* on, the credentials that CrashRecords.read() returned. Does not block.

        Returns:
            False if the process takes no more. It ends then, and another one has to be started for *leases*.
        """
        # not as arguments, which others could read: there are passwords in the URLs
        message = json.dumps({"parent": os.getpid(), "leases": leases}).encode() + b"\n"
        try:
            if os.write(self._descriptor, message) == len(message):
                return True
        except OSError:
            # it has ended, or its buffer is full
            pass
        self.close()
        return False

    def close(self) -> None:
        """Send no more: the process ends as soon as it has given everything back."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # a forked child may have it, too
            with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as ours:
                ours.shutdown(socket.SHUT_WR)

    def forget(self) -> None:
        """Close the descriptor of a forked child, which does not use it."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1


class Backlog:
    """Leases that are to be given back."""

    def __init__(self) -> None:
        # credentials, the parent, and until when, on the monotonic clock, they are worth a try
        self._waiting: list[tuple[dict[str, Any], int, float]] = []
        self._stores: dict[str, Store] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, leases: list[dict[str, Any]], parent: int) -> None:
        """Add the credentials of leases.

        Args:
            parent: pid of the parent, which may have ended already.
        """
        now_s = time.monotonic()
        self._waiting += [
            (lease, parent, now_s + lease["store"]["config"]["ttl_ms"] / 1000) for lease in leases
        ]

    def give_back(self) -> None:
        """Try once to release each lease; keep those whose Redis does not reply. Logs errors.

        Blocks:
            for one attempt for each Redis that does not reply.
        """
        waiting, self._waiting = self._waiting, []
        errors: dict[str, StoreUnavailable] = {}
        for credentials, parent, until_s in waiting:
            where = json.dumps(credentials["store"], sort_keys=True)
            try:
                if where in errors:
                    # an attempt for each would take seconds, too
                    raise errors[where]
                self._release(where, credentials)
            except StoreUnavailable as error:
                errors[where] = error
                if time.monotonic() < (until_s if os.getppid() == parent else orphaned_until_s()):
                    self._waiting.append((credentials, parent, until_s))
                else:
                    log.warning("could not give back the lease of a killed process: %s", error)
            except SnowredisError as error:
                log.warning("could not give back the lease of a killed process: %s", error)

    def _release(self, where: str, credentials: dict[str, Any]) -> None:
        store = self._stores.get(where)
        if store is None:
            store = open_store(credentials["store"]["urls"], config_of(credentials))
            self._stores[where] = store
        worker = release(store, credentials)
        if worker is not None:
            log.info("pool %s: gave worker id %d of a killed process back", store.config.name, worker)

    def close(self) -> None:
        """Close all connections."""
        for store in self._stores.values():
            store.close()


@functools.cache
def orphaned_until_s() -> float:
    """Return, on the monotonic clock, ORPHAN_S after the first call: the same for all leases."""
    return time.monotonic() + ORPHAN_S


def serve(mailbox: socket.socket) -> None:
    """Give back the leases whose credentials arrive as lines of JSON, until none has arrived for LINGER_S.

    Blocks:
        until each lease is given back, or has ended by its ttl; for ORPHAN_S more at most after the parent's end.
    """
    received, is_open = b"", True
    with contextlib.closing(Backlog()) as backlog:
        while is_open or backlog:
            if not is_open:
                time.sleep(RETRY_S)
            elif select.select([mailbox], [], [], RETRY_S if backlog else LINGER_S)[0]:
                data = mailbox.recv(1 << 16)
                is_open, received = bool(data), received + data
            elif not backlog:
                # from now on the sender gets an error; what is in the buffer can still be read
                mailbox.shutdown(socket.SHUT_RD)
            *lines, received = received.split(b"\n")
            for line in lines:
                message = json.loads(line)
                backlog.add(message["leases"], message["parent"])
            backlog.give_back()


def main() -> None:
    """Give back the leases whose credentials arrive on stdin."""
    logging.basicConfig(format="snowredis: %(message)s")
    with socket.socket(fileno=os.dup(0)) as mailbox:
        # gevent may have made it non-blocking
        mailbox.setblocking(True)
        serve(mailbox)
