"""One pool over several independent Redis servers, and the check that every process has the same list of them.

Each server has its own share of the worker ids: server i of n has those with w % n == i. So no server has to agree with
another, and any of them may be unavailable or lose everything: the rules of the lease hold on each server by itself. A
process whose server is unavailable leases a worker id of another one.

That requires the same list, in the same order, in every process. The signature of each server's pool contains its place
in the list. ListCheck compares it with this process' list before a claim, and at renewals for servers that were
unavailable then. A server without the pool shows nothing, so the pool is created only if every server is available or
was checked before. The servers are created in an order that is the same whatever the order of the list.

Blocks as its servers do, one after the other. Has no thread and no lock: one caller at a time, as the lease manager.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from snowredis.errors import ConfigError, LayoutMismatch, StoreUnavailable
from snowredis.servers.connections import CALL_LIMIT_S, time_limit
from snowredis.snowflake import protocol, replies
from snowredis.snowflake.replies import Reply, Seen

log = logging.getLogger("snowredis")

# a renewal was granted already when another server is checked, and its caller waits
CHECK_LIMIT_S = 0.3


class Server(protocol.Store, Protocol):
    """A store whose pool can be read before anything is claimed in it."""

    def stored(self, field: protocol.StoredField) -> str:
        """Return a field of the pool there; "" if there is no pool. Raises StoreUnavailable and its subclasses."""


class ListCheck:
    """State of the checks of one process' servers, which are named by their index in the list.

    Attributes:
        known: servers whose pool was found to belong to this list.
    """

    def __init__(self, servers: Sequence[Server], config: protocol.PoolConfig) -> None:
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
        original = next((i for i in sorted(self.known - {index}) if self._servers[i].config.signature == stored), None)
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


_R = TypeVar("_R", bound=Reply)

# a worker id that can be used within this time is taken; before a later one is taken, the other servers are asked
SOON_MS = 1_000
# how often unavailable and full servers are asked again while another one is settling
ASK_AGAIN_MS = 500


class ShardedStore:
    """A Store over independent servers.

    Args:
        servers: two or more, in the same order in every process, with ``share=(index, count)`` in their settings.
        config: of the whole pool, without a share.
        choose: returns a random number below its argument: the index of the server that is asked first.

    Raises:
        ConfigError: there is one server only, or the shares are not those of this order.
    """

    redundant = True

    def __init__(
        self,
        servers: Sequence[Server],
        config: protocol.PoolConfig,
        *,
        choose: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        count = len(servers)
        if count < 2 or [server.config.share for server in servers] != [(i, count) for i in range(count)]:
            raise ConfigError("a sharded store needs two or more servers, each with the share of its place in the list")
        self._servers = tuple(servers)
        self.config = config
        self._choose = choose
        self._seen = [Seen()] * count
        # servers that did not reply when they were asked last: others are asked before them
        self._away: set[int] = set()
        self._list = ListCheck(self._servers, config)

    @property
    def where(self) -> str:
        return ", ".join(server.where for server in self._servers)

    @property
    def shared(self) -> bool:
        return all(server.shared for server in self._servers)

    @property
    def urls(self) -> Sequence[str]:
        urls = [url for server in self._servers for url in server.urls]
        return urls if len(urls) == len(self._servers) else ()

    def claim(self, request: protocol.ClaimRequest, seen: Seen) -> replies.ClaimReply:
        """Lease a worker id of the first server that has one to be used soon; else the one that can be used first.

        *seen* is ignored: what was seen of one server says nothing about another.
        """
        errors, absent = self._list.check_all()
        self._away.update(errors)
        granted: dict[int, replies.Granted] = {}
        refused: list[replies.ClaimRefused] = []
        chosen: int | None = None

        def opens_in_ms(index: int) -> int:
            return min(granted[index].lanes_ms) - request.fit_ms

        try:
            # on a server without the pool, the claim creates it
            for index in [*absent, *(index for index in self._order() if index not in absent)]:
                if index in errors:
                    continue
                try:
                    reply = self._ask(index, lambda server, seen: server.claim(request, seen))
                except StoreUnavailable as error:
                    errors[index] = error
                    if index in absent:
                        # a process creates the pool on a server only after it did so on the one before
                        errors |= dict.fromkeys(absent[absent.index(index) :], error)
                    continue
                if isinstance(reply, replies.ClaimRefused):
                    refused.append(reply)
                    continue
                granted[index] = reply
                if opens_in_ms(index) <= SOON_MS:
                    break
            chosen = min(granted, key=opens_in_ms, default=None)
        finally:
            for index, reply in granted.items():
                if index != chosen:
                    self._give_back(index, reply, request)
        if chosen is None:
            return self._refused(refused, errors)
        worker = granted[chosen].worker * len(self._servers) + chosen
        self._list.warn_of_unseen(worker)
        return granted[chosen].replaced(worker=worker)

    def _refused(
        self, refused: list[replies.ClaimRefused], errors: dict[int, StoreUnavailable]
    ) -> replies.ClaimRefused:
        """Return the reply with the best prospect: a settling server, else a lane ahead of the clock, else a full pool.

        Raises StoreUnavailable if no server replied.
        """
        if not refused:
            raise StoreUnavailable(
                self.where,
                "no server is available: " + "; ".join(f"{e.where}: {e.reason}" for e in errors.values()),
            ) from next(iter(errors.values()))
        rank = (replies.Settling, replies.Behind, replies.PoolFull)
        soonest = min(refused, key=lambda reply: (rank.index(type(reply)), reply.wait_ms))
        settling = [reply for reply in refused if isinstance(reply, replies.Settling)]
        if settling and len(settling) < len(self._servers):
            return soonest.replaced(wait_ms=min(ASK_AGAIN_MS, soonest.wait_ms))
        return soonest

    def renew(self, request: protocol.RenewRequest, seen: Seen) -> replies.RenewReply:
        """Renew the lease, and check one of the servers that were not checked yet.

        Raises LayoutMismatch, after the lease was renewed, if that server belongs to another list: then another process
        may make the same ids.
        """
        local, index = divmod(request.worker, len(self._servers))
        reply = self._ask(index, lambda server, seen: server.renew(request._replace(worker=local), seen))
        self._list.check_next()
        return reply

    def release(self, request: protocol.ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        local, index = divmod(request.worker, len(self._servers))
        return self._ask(index, lambda server, seen: server.release(request._replace(worker=local), seen))

    def create(self, caller_ms: int) -> replies.CreateReply:
        """Create the pool on every server. Returns Created if it was new on at least one of them.

        Changes nothing unless all of them are available: raises StoreUnavailable or LayoutMismatch.
        """
        errors, _ = self._list.check_all()
        for error in errors.values():
            raise error
        created = [
            self._ask(index, lambda server, _: server.create(caller_ms))
            for index in self._list.in_fixed_order(range(len(self._servers)))
        ]
        return next((reply for reply in created if isinstance(reply, replies.Created)), created[0])

    def note_number(self, highest: int, caller_ms: int) -> replies.NoteReply:
        """Note it on every server; on one that is unavailable, the registry is asked again one day."""
        noted: list[replies.NoteReply] = []
        errors: list[StoreUnavailable] = []
        for index in range(len(self._servers)):
            try:
                noted.append(self._ask(index, lambda server, _: server.note_number(highest, caller_ms)))
            except StoreUnavailable as error:
                errors.append(error)
        if not noted:
            raise errors[0]
        return next((reply for reply in noted if isinstance(reply, replies.NumberNoted)), noted[0])

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        for server in self._servers:
            server.after_fork()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _order(self) -> list[int]:
        """Return all servers, beginning with a random one; those that were unavailable come last."""
        count = len(self._servers)
        start = self._choose(count)
        return sorted(((start + i) % count for i in range(count)), key=self._away.__contains__)

    def _ask(self, index: int, ask: Callable[[Server, Seen], _R]) -> _R:
        server = self._servers[index]
        try:
            reply = ask(server, self._seen[index])
        except StoreUnavailable:
            self._away.add(index)
            raise
        except LayoutMismatch as error:
            self._away.discard(index)
            self._list.known.discard(index)
            raise self._list.mismatch(index, error.stored) from None
        self._away.discard(index)
        self._list.saw(index)
        self._seen[index] = reply.seen
        return reply

    def _give_back(self, index: int, granted: replies.Granted, request: protocol.ClaimRequest) -> None:
        """Release a worker id that was claimed and will not be used; on an unavailable server, its lease expires."""
        unused = protocol.ReleaseRequest(
            worker=granted.worker,
            token=request.token,
            renewal_id=granted.renewal_id,
            pending_renewal_id="",
            caller_ms=request.caller_ms,
            held_until_ms=granted.until_ms,
            held_outage_ms=granted.outage_until_ms,
            marks_ms=(0,) * len(granted.lanes_ms),
            stats=protocol.NO_STATS,
        )
        with contextlib.suppress(StoreUnavailable):
            self._ask(index, lambda server, seen: server.release(unused, seen))
