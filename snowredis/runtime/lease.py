"""A lease as its holder sees it: the part for users, and the part that only the runtime may know."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from snowredis.core.layout import Layout
from snowredis.lease.model import PoolConfig, ReleaseRequest, RenewRequest
from snowredis.lease.replies import Granted, Renewed
from snowredis.lease.stats import WorkerStats


class Lease(NamedTuple):
    """The right of this process to one worker id.

    Attributes:
        pool, worker: the pool, and the worker id.
        token_hash: identifies the claim without revealing its token; hex.
        until: the first tick that is not reserved.
        until_ms: the same in ms since 1970.
        opens: for each lane (namespace) the first tick that was available when it was claimed.
        incarnation: of the pool, when the lease was last renewed.
        renewals: how often it was renewed.
    """

    pool: str
    worker: int
    token_hash: str
    until: int
    until_ms: int
    opens: tuple[int, ...]
    incarnation: str
    renewals: int


class HeldLease(NamedTuple):
    """A lease with its secrets and its bookkeeping. Immutable: replaced as a whole.

    Attributes:
        serial: of the claim; counts the claims of this process and of those that it was forked from.
        token: proves to the store that this process is the holder.
        renewal_id: of the last renewal that had a reply, or of the claim.
        pending_renewal_id: of a renewal that was sent and has no reply; empty if there is none.
        lanes_ms: where each lane's reservation begins, ms since 1970.
        generation: of the process that claimed it, by the fork guard: no other may give it back.
        marks: where each lane's mark is recorded before its ids can be taken, in case of a crash; None if nowhere.
    """

    serial: int
    token: str
    renewal_id: str
    pending_renewal_id: str
    lanes_ms: tuple[int, ...]
    lease: Lease
    generation: int
    marks: memoryview | None = None

    @classmethod
    def granted(
        cls, reply: Granted, config: PoolConfig, token: str, serial: int, generation: int
    ) -> HeldLease:
        """Return the lease that *reply* grants to the claim with *token*."""
        layout = config.layout
        # 0 is not a valid id, and without a sequence tick 0 of worker 0 has no other
        lowest = 0 if layout.sequences > 1 else 1
        lease = Lease(
            pool=config.name,
            worker=reply.worker,
            token_hash=hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest(),
            until=layout.first_tick_from(reply.until_ms),
            until_ms=reply.until_ms,
            opens=tuple(max(lowest, layout.first_tick_from(ms)) for ms in reply.lanes_ms),
            incarnation=reply.incarnation,
            renewals=0,
        )
        return cls(serial, token, reply.renewal_id, "", reply.lanes_ms, lease, generation)

    def renewed(self, reply: Renewed, layout: Layout) -> HeldLease:
        """Return this lease after *reply* to its pending renewal; its end never moves back."""
        until_ms = max(reply.until_ms, self.lease.until_ms)
        lease = self.lease._replace(
            until=layout.first_tick_from(until_ms),
            until_ms=until_ms,
            incarnation=reply.incarnation,
            renewals=self.lease.renewals + 1,
        )
        return self._replace(renewal_id=self.pending_renewal_id, pending_renewal_id="", lease=lease)

    def renew_request(self, caller_ms: int, stats: WorkerStats, owner: str) -> RenewRequest:
        """Return the request for the pending renewal, made at *caller_ms* of this host's clock."""
        return RenewRequest(
            *self._credentials,
            caller_ms=caller_ms,
            held_until_ms=self.lease.until_ms,
            held_lanes_ms=self.lanes_ms,
            stats=stats,
            owner=owner,
            held_incarnation=self.lease.incarnation,
        )

    def release_request(
        self, caller_ms: int, marks_ms: tuple[int, ...], stats: WorkerStats
    ) -> ReleaseRequest:
        """Return the request to give it back; *marks_ms*: each lane's first unused ms, 0 for a lane never used."""
        return ReleaseRequest(*self._credentials, caller_ms=caller_ms, marks_ms=marks_ms, stats=stats)

    @property
    def _credentials(self) -> tuple[int, str, str, str]:
        """The first fields of both requests: worker id, token, renewal id, pending renewal id."""
        return self.lease.worker, self.token, self.renewal_id, self.pending_renewal_id


class Claimed(NamedTuple):
    """Result of LeaseManager.claim().

    Attributes:
        settling_ms: 0 if a lease is held, else how long the pool asks to wait before the next attempt.
        replaced: the lease that was held before and is to be released; no ids are made of it any more.
        granted: the new lease, if one was granted; *void*: whether no ids may be made of it.
    """

    settling_ms: int = 0
    replaced: HeldLease | None = None
    granted: HeldLease | None = None
    void: bool = False
