"""A lease as its holder has it: values that are replaced as a whole."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import PoolConfig, PresentedLease, ReleaseRequest, RenewRequest, WorkerStats
from snowredis.snowflake.replies import Granted, Renewed


def hash_of(token: str) -> str:
    """Return what Redis and people see of the *token* of a claim."""
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()


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
        outage_until, outage_until_ms: as until, of the outage lane, the last one in ``opens``; 0 if it is not reserved.
    """

    pool: str
    worker: int
    token_hash: str
    until: int
    until_ms: int
    opens: tuple[int, ...]
    incarnation: str
    renewals: int
    outage_until: int = 0
    outage_until_ms: int = 0


class HeldLease(NamedTuple):
    """A lease with its secrets and its bookkeeping. Immutable: replaced as a whole.

    Attributes:
        serial: of the claim; counts the claims of this process and of those that it was forked from.
        token: proves to the store that this process is the holder.
        renewal_id: of the last renewal that had a reply, or of the claim.
        pending_renewal_id: of a renewal that was sent and has no reply; empty if there is none.
        lanes_ms: where each lane's reservation begins, ms since 1970.
        generation: of the process that claimed it, by the fork guard: no other may release it.
        is_recorded: whether a crash record has it.
        clocks_s: wall clock and monotonic clock at the last reply that granted something.
        taken_ms: when this process took it over from one that had ended, ms since 1970; 0 if it did not.
        outage_used_ms: that one may have used the outage lane before this time, and not from it on; 0: it did not.
    """

    serial: int
    token: str
    renewal_id: str
    pending_renewal_id: str
    lanes_ms: tuple[int, ...]
    lease: Lease
    generation: int
    is_recorded: bool = False
    clocks_s: tuple[float, float] = (0.0, 0.0)
    taken_ms: int = 0
    outage_used_ms: int = 0

    @classmethod
    def granted(cls, reply: Granted, config: PoolConfig, token: str, serial: int, generation: int) -> HeldLease:
        """Return the lease that *reply* grants to the claim with *token*."""
        layout = config.layout
        # 0 is not a valid id, and without a sequence tick 0 of worker 0 has no other
        lowest = 0 if layout.sequences > 1 else 1
        lease = Lease(
            pool=config.name,
            worker=reply.worker,
            token_hash=hash_of(token),
            until=layout.first_tick_from(reply.until_ms),
            until_ms=reply.until_ms,
            opens=tuple(max(lowest, layout.first_tick_from(ms)) for ms in reply.lanes_ms),
            incarnation=reply.incarnation,
            renewals=0,
            outage_until=layout.first_tick_from(reply.outage_until_ms) if reply.outage_until_ms else 0,
            outage_until_ms=reply.outage_until_ms,
        )
        return cls(serial, token, reply.renewal_id, "", reply.lanes_ms, lease, generation)

    def renewed(self, reply: Renewed, layout: Layout) -> HeldLease:
        """Return this lease after *reply* to its pending renewal; its end never moves back."""
        until_ms = max(reply.until_ms, self.lease.until_ms)
        held = self._with_outage_lane(reply, layout)
        lease = held.lease._replace(
            until=layout.first_tick_from(until_ms),
            until_ms=until_ms,
            incarnation=reply.incarnation,
            renewals=self.lease.renewals + 1,
        )
        return held._replace(renewal_id=self.pending_renewal_id, pending_renewal_id="", lease=lease)

    def _with_outage_lane(self, reply: Renewed, layout: Layout) -> HeldLease:
        """Return this lease with the reservation of its outage lane after *reply*.

        The beginning may be later than before as long as the lane is not reserved.
        """
        if not (reply.outage_from_ms or reply.outage_until_ms):
            return self
        lease = self.lease
        until_ms = max(reply.outage_until_ms, lease.outage_until_ms)
        from_ms = max(self.lanes_ms[-1], reply.outage_from_ms)
        opens = max(lease.opens[-1], layout.first_tick_from(from_ms))
        lease = lease._replace(
            opens=(*lease.opens[:-1], opens),
            outage_until=layout.first_tick_from(until_ms) if until_ms else 0,
            outage_until_ms=until_ms,
        )
        return self._replace(lanes_ms=(*self.lanes_ms[:-1], from_ms), lease=lease)

    @property
    def outage_lane_ms(self) -> tuple[int, int]:
        """Beginning and end of the reservation in its outage lane; the end is 0 if it has none."""
        return self.lanes_ms[-1], self.lease.outage_until_ms

    def renew_request(self, caller_ms: int, stats: WorkerStats, owner: str) -> RenewRequest:
        """Return the request for the pending renewal, made at *caller_ms* of this host's clock."""
        return RenewRequest(self._presented, caller_ms, self.lanes_ms, stats, owner, self.lease.incarnation)

    def release_request(self, caller_ms: int, opened: str, stats: WorkerStats) -> ReleaseRequest:
        """Return the request to release it; *opened*: as in ReleaseRequest."""
        return ReleaseRequest(self._presented, caller_ms, opened, stats)

    @property
    def _presented(self) -> PresentedLease:
        """The lease as its requests present it."""
        lease = self.lease
        return PresentedLease(
            lease.worker, self.token, self.renewal_id, self.pending_renewal_id, lease.until_ms, lease.outage_until_ms
        )


class Claimed(NamedTuple):
    """Result of a claim.

    Attributes:
        settling_ms: 0 if a lease is held, else how long the pool asks to wait before the next attempt.
        replaced: the lease that was held before and is to be released; no ids are made of it any more.
        granted: the new lease, if one was granted; *void*: whether no ids may be made of it.
    """

    settling_ms: int = 0
    replaced: HeldLease | None = None
    granted: HeldLease | None = None
    void: bool = False
