"""Check that independent servers are listed alike in every process.

Each server's pool says in its signature which place in the list it was made for. It is compared
with this process' list before a claim, and at renewals for servers that were away until then. A
server without a pool says nothing, so a pool is made only while every server answers or was seen
before, and on one server after the other in an order that does not depend on the list's.
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

# a renewal's answer is there already when another server is looked at
LOOK_LIMIT_S = 0.3


class Server(Store, Protocol):
    """A store that can say which pool it holds before anything is claimed there."""

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool there; "" if there is no pool. Raises StoreUnavailable and its subclasses."""


class ListCheck:
    """What one process has seen of its servers.

    Attributes:
        known: servers whose pool was seen to be of this very list.
    """

    def __init__(self, servers: Sequence[Server], config: PoolConfig) -> None:
        self._servers = servers
        self._config = config
        self.known: set[int] = set()
        # servers that did not answer when all were looked at
        self._silent: set[int] = set()
        # servers that were said to hold a copy of another's pool
        self._copies: set[int] = set()
        self._looks = 0

    def saw(self, index: int) -> None:
        """Note that a script ran on a server's pool: it is of this list."""
        self.known.add(index)
        self._copies.discard(index)

    def in_fixed_order(self, indices: Iterable[int]) -> list[int]:
        """Sorted by address, so that lists of the same servers in other orders begin with the same one."""
        return sorted(indices, key=lambda index: self._servers[index].where)

    def look_at_all(self) -> tuple[dict[int, StoreUnavailable], list[int]]:
        """Look at every pool that was not seen yet before anything is claimed in any of them.

        A process with another list could else be given, by a server that the two lists have not in common or
        have at different places, a worker id that somebody has from another server.

        Returns:
            the servers that cannot be used now; those where the pool has to be made, in the order to do so.

        Raises:
            LayoutMismatch: a pool is of another list or has other settings.
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
        # after the loop: a copy is one only of a pool that is known
        for index, stored in others.items():
            found = self.mismatch(index, stored)
            if not isinstance(found, StoreUnavailable):
                raise found
            errors[index] = found
        if unseen:
            for index in absent:
                errors[index] = StoreUnavailable(
                    self._servers[index].where,
                    f"it has no pool {self._config.name!r}, and one is made only when all servers were seen, which "
                    f"{unseen} was not: another process may have these servers in another order. Start that server, "
                    "or run `snowredis pool create` once while all of them answer",
                )
        return errors, self.in_fixed_order(absent)

    def look_at_next(self) -> None:
        """Look at one server whose pool was not seen. Raises LayoutMismatch if it is of another list."""
        unseen = [index for index in range(len(self._servers)) if index not in self.known]
        if not unseen:
            return
        self._looks += 1
        index = unseen[self._looks % len(unseen)]
        server = self._servers[index]
        # a ttl may be shorter than the usual limit
        limit_s = min(LOOK_LIMIT_S, self._config.heartbeat_ms / 2000)
        with contextlib.suppress(StoreUnavailable), time_limit(limit_s):
            stored = server.stored("signature")
            if stored == server.config.signature:
                self.known.add(index)
            elif stored:
                raise self.mismatch(index, stored)

    def mismatch(self, index: int, stored: str) -> LayoutMismatch | StoreUnavailable:
        """Return what it means that server *index* has a pool with another signature.

        StoreUnavailable for a copy of another server's pool, as after a snapshot was loaded into the wrong
        server: the others are well. The same incarnation, which is random, tells it from a pool that was
        made there by somebody with another list.
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
        unseen = [self._servers[index].where for index in sorted(self._silent - self.known)]
        if unseen:
            log.warning(
                "pool %s: claimed worker id %d before %s was seen. A process that has the same servers in another "
                "order could make the same ids; this is checked as soon as that server answers. Make sure that every "
                "process has the same list in the same order.",
                self._config.name,
                worker,
                ", ".join(unseen),
            )
