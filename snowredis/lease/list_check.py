"""Check that every process has the same list of independent servers, in the same order.

The signature of each server's pool contains its place in the list. It is compared with this process' list before a
claim, and for servers that were unavailable then, at renewals. A server without the pool shows nothing, so the pool is
created only while every server is available or was checked before, and on one server after the other, in an order that
is the same whatever the order of the list.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.lease.model import PoolConfig, Store, StoredField
from snowredis.lease.time_limit import CALL_LIMIT_S, time_limit

log = logging.getLogger("snowredis")

# a renewal was granted already when another server is checked, and its caller waits
CHECK_LIMIT_S = 0.3


class Server(Store, Protocol):
    """A store whose pool can be read before anything is claimed in it."""

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool there; "" if there is no pool. Raises StoreUnavailable and its subclasses."""


class ListCheck:
    """State of the checks of one process' servers, which are named by their index in the list.

    Attributes:
        known: servers whose pool was found to belong to this list.
    """

    def __init__(self, servers: Sequence[Server], config: PoolConfig) -> None:
        self._servers = servers
        self._config = config
        self.known: set[int] = set()
        # servers that did not reply at the last check_all()
        self._silent: set[int] = set()
        # servers about which a warning was logged that they hold a copy of another server's pool
        self._copies: set[int] = set()
        self._checks = 0

    def saw(self, index: int) -> None:
        """Record that a script ran on the server's pool, which so belongs to this list."""
        self.known.add(index)
        self._copies.discard(index)

    def in_fixed_order(self, indices: Iterable[int]) -> list[int]:
        """Return *indices* sorted by address: the same order in every process, whatever the order of its list."""
        return sorted(indices, key=lambda index: self._servers[index].where)

    def check_all(self) -> tuple[dict[int, StoreUnavailable], list[int]]:
        """Check every server that is not known yet, before anything is claimed on any of them.

        Otherwise a process with another list could lease a worker id that another process has from another server.

        Blocks for a round trip to each server, CALL_LIMIT_S at most.

        Returns:
            the servers that cannot be used now, with the reason; and those without the pool, in the order in which it
            has to be created.

        Raises:
            LayoutMismatch: a pool belongs to another list or has other settings.
        """
        errors: dict[int, StoreUnavailable] = {}
        absent: list[int] = []
        others: dict[int, str] = {}
        self._silent = set()
        for index, server in enumerate(self._servers):
            if index in self.known:
                continue
            try:
                with time_limit(CALL_LIMIT_S / len(self._servers)):
                    stored = server.stored("signature")
            except StoreUnavailable as error:
                self._silent.add(index)
                errors[index] = error
                continue
            if not stored:
                absent.append(index)
            elif stored == server.config.signature:
                self.known.add(index)
            else:
                others[index] = stored
        unseen = ", ".join(self._servers[index].where for index in errors)
        # after the loop: the original of a copy has to be known
        for index, stored in others.items():
            mismatch = self.mismatch(index, stored)
            if not isinstance(mismatch, StoreUnavailable):
                raise mismatch
            errors[index] = mismatch
        if unseen:
            for index in absent:
                errors[index] = StoreUnavailable(
                    self._servers[index].where,
                    f"it has no pool {self._config.name!r}, which is created only after all servers were checked; "
                    f"{unseen} did not reply. Another process may have these servers in another order. Start that "
                    "server, or run `snowredis pool create` once while all of them are available",
                )
        return errors, self.in_fixed_order(absent)

    def check_next(self) -> None:
        """Check one server that is not known, each time another one. Ignores one that is unavailable.

        Blocks for a round trip, CHECK_LIMIT_S at most. Raises LayoutMismatch if its pool belongs to another list.
        """
        unseen = [index for index in range(len(self._servers)) if index not in self.known]
        if not unseen:
            return
        self._checks += 1
        index = unseen[self._checks % len(unseen)]
        server = self._servers[index]
        # with a short ttl, half a heartbeat
        limit_s = min(CHECK_LIMIT_S, self._config.heartbeat_ms / 2000)
        with contextlib.suppress(StoreUnavailable), time_limit(limit_s):
            stored = server.stored("signature")
            if stored == server.config.signature:
                self.known.add(index)
            elif stored:
                raise self.mismatch(index, stored)

    def mismatch(self, index: int, stored: str) -> LayoutMismatch | StoreUnavailable:
        """Return the error to raise for server *index*, whose pool has the signature *stored*.

        StoreUnavailable if it is a copy of another server's pool, as after a snapshot was loaded into the wrong server:
        the others can be used. A copy has the same incarnation, which is random; a pool that was created for another
        list has not. Blocks for up to two round trips.
        """
        server = self._servers[index]
        mismatch = LayoutMismatch(self._config.name, stored, server.config.signature)
        original = next(
            (i for i in sorted(self.known - {index}) if self._servers[i].config.signature == stored), None
        )
        if original is None:
            return mismatch
        try:
            if self._servers[original].stored("incarnation") != server.stored("incarnation"):
                return mismatch
        except StoreUnavailable:
            return mismatch
        where = self._servers[original].where
        reason = (
            f"it holds a copy of the pool {self._config.name!r} of {where} and is not used. Run `snowredis pool delete "
            f"{self._config.name}` on it alone if a snapshot of the wrong server was loaded"
        )
        if index not in self._copies:
            self._copies.add(index)
            log.warning("pool %s: %s: %s", self._config.name, server.where, reason)
        return StoreUnavailable(server.where, reason)

    def warn_of_unseen(self, worker: int) -> None:
        """Log a warning if *worker* was claimed while servers were unavailable that were never checked."""
        unseen = [self._servers[index].where for index in sorted(self._silent - self.known)]
        if unseen:
            log.warning(
                "pool %s: claimed worker id %d before %s was checked. A process that has the same servers in another "
                "order could make the same ids; this is checked as soon as that server is available. Make sure that "
                "every process has the same list in the same order.",
                self._config.name,
                worker,
                ", ".join(unseen),
            )
