"""One pool over several Redis servers that know nothing of each other.

Each server has a share of the worker ids for itself: server i of n those with w % n == i. So no
server has to agree with another, and any of them may be away or lose everything: the rules of
the lease hold on each by itself. Whoever finds its own server away takes a worker id of another.

That rests on one list, in one order, in every process: see lease.list_check.

Blocks as its servers do, one after the other; has no thread and no lock of its own. One caller
at a time, as the lease lease_manager does it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from snowredis.errors import ConfigError, LayoutMismatch, StoreUnavailable
from snowredis.lease.list_check import ListCheck, Server
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest
from snowredis.lease.replies import (
    Behind,
    ClaimRefused,
    ClaimReply,
    Created,
    CreateReply,
    Granted,
    PoolFull,
    ReleaseReply,
    RenewReply,
    Reply,
    Seen,
    Settling,
)
from snowredis.lease.stats import NO_STATS

_R = TypeVar("_R", bound=Reply)

# a worker id that can be used sooner is taken as it is; for a later one, the other servers are asked first
SOON_MS = 1_000
# so often a server that is away or full is asked again while another lets newcomers wait
ASK_AGAIN_MS = 500


class ShardedStore:
    """A Store over independent servers.

    Args:
        servers: two or more, in the same order in every process; made with ``share=(index, count)``.
        config: of the whole pool, without a share.
        choose: a number below the given one, for the server to begin with.

    Raises:
        ConfigError: one server, the same one twice, or shares that are not those of this order.
    """

    redundant = True

    def __init__(
        self,
        servers: Sequence[Server],
        config: PoolConfig,
        *,
        choose: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        count = len(servers)
        if count < 2 or [server.config.share for server in servers] != [(i, count) for i in range(count)]:
            raise ConfigError("independent servers: two or more are needed, each with the share of its place")
        self._servers = tuple(servers)
        self.config = config
        self._choose = choose
        self._seen = [Seen()] * count
        # servers that did not answer when they were asked last: others are asked before them
        self._away: set[int] = set()
        self._list = ListCheck(self._servers, config)

    @property
    def where(self) -> str:
        return ", ".join(server.where for server in self._servers)

    @property
    def urls(self) -> Sequence[str]:
        urls = [url for server in self._servers for url in server.urls]
        return urls if len(urls) == len(self._servers) else ()

    def claim(self, request: ClaimRequest, seen: Seen) -> ClaimReply:
        """Lease a worker id of the first server that has one to be used at once; else the soonest of any.

        *seen* is not used here: what was seen of one server says nothing of another.
        """
        errors, absent = self._list.look_at_all()
        self._away.update(errors)
        late: tuple[int, int, Granted] | None = None
        refused: list[ClaimRefused] = []
        try:
            # where there is no pool yet, the claim makes it
            for index in [*absent, *(index for index in self._order() if index not in absent)]:
                if index in errors:
                    continue
                try:
                    reply = self._ask(index, lambda server, seen: server.claim(request, seen))
                except StoreUnavailable as error:
                    errors[index] = error
                    if index in absent:
                        # only whoever has made the one before goes on to the next
                        errors |= dict.fromkeys(absent[absent.index(index) :], error)
                    continue
                if isinstance(reply, ClaimRefused):
                    refused.append(reply)
                    continue
                opens_in_ms = min(reply.lanes_ms) - request.fit_ms
                if opens_in_ms > SOON_MS and late is not None and late[0] <= opens_in_ms:
                    self._give_back(index, reply, request)
                    continue
                if late is not None:
                    self._give_back(late[1], late[2], request)
                late = (opens_in_ms, index, reply)
                if opens_in_ms <= SOON_MS:
                    break
        except BaseException:
            if late is not None:
                self._give_back(late[1], late[2], request)
            raise
        if late is not None:
            _, index, granted = late
            worker = granted.worker * len(self._servers) + index
            self._list.warn_of_unseen(worker)
            return replace(granted, worker=worker)
        return self._refused(refused, errors)

    def _refused(self, replies: list[ClaimRefused], errors: dict[int, StoreUnavailable]) -> ClaimRefused:
        """Return the reply that leaves most hope: one server that settles, else a lane ahead of the clock."""
        if not replies:
            raise StoreUnavailable(
                self.where,
                "none of them can be used: " + "; ".join(f"{e.where}: {e.reason}" for e in errors.values()),
            ) from next(iter(errors.values()))
        rank = (Settling, Behind, PoolFull)
        soonest = min(replies, key=lambda reply: (rank.index(type(reply)), reply.wait_ms))
        settling = [reply for reply in replies if isinstance(reply, Settling)]
        if settling and len(settling) < len(self._servers):
            return replace(soonest, wait_ms=min(ASK_AGAIN_MS, soonest.wait_ms))
        return soonest

    def renew(self, request: RenewRequest, seen: Seen) -> RenewReply:
        """Renew the lease, and look at one of the servers that were not seen yet.

        Raises LayoutMismatch, with the lease renewed, if that server is of another list: then another process may make
        the same ids.
        """
        local, index = divmod(request.worker, len(self._servers))
        reply = self._ask(index, lambda server, seen: server.renew(replace(request, worker=local), seen))
        self._list.look_at_next()
        return reply

    def release(self, request: ReleaseRequest, seen: Seen) -> ReleaseReply:
        local, index = divmod(request.worker, len(self._servers))
        return self._ask(index, lambda server, seen: server.release(replace(request, worker=local), seen))

    def create(self, caller_ms: int) -> CreateReply:
        """Create the pool on every server. Returns Created if it was new on one of them.

        Does nothing unless all of them answer: raises StoreUnavailable or LayoutMismatch.
        """
        errors, _ = self._list.look_at_all()
        for error in errors.values():
            raise error
        replies = [
            self._ask(index, lambda server, _: server.create(caller_ms))
            for index in self._list.in_fixed_order(range(len(self._servers)))
        ]
        return next((reply for reply in replies if isinstance(reply, Created)), replies[0])

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections and locks alone."""
        for server in self._servers:
            server.after_fork()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _order(self) -> list[int]:
        """Every server once: from a random one on, those that were away at the end."""
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
            raise self._list.mismatch(index, error.stored) from error
        self._away.discard(index)
        self._list.saw(index)
        self._seen[index] = reply.seen
        return reply

    def _give_back(self, index: int, granted: Granted, request: ClaimRequest) -> None:
        """Release what was just claimed and will not be used. A server that does not reply frees it after a ttl."""
        unused = ReleaseRequest(
            worker=granted.worker,
            token=request.token,
            renewal_id=granted.renewal_id,
            pending_renewal_id="",
            caller_ms=request.caller_ms,
            marks_ms=(0,) * len(granted.lanes_ms),
            stats=NO_STATS,
        )
        with contextlib.suppress(StoreUnavailable):
            self._ask(index, lambda server, seen: server.release(unused, seen))
