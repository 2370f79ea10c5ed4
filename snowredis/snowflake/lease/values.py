"""A lease as its holder has it: values that are replaced as a whole. Pure."""

from __future__ import annotations

from typing import NamedTuple

from snowredis.core.layout import Layout
from snowredis.snowflake.crash.record import Credentials
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.replies import Terms
from snowredis.snowflake.protocol.requests import WorkerStats, hash_of


class OwnLease(NamedTuple):
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
        terms: as Redis granted or renewed it last.
        pending_renewal_id: of a renewal that was sent and has no reply; empty if there is none.
        generation: of the process that claimed it, by the fork guard: no other may release it.
        is_recorded: whether a crash record has it.
        clocks_s: wall clock and monotonic clock at the last reply that granted something.
        taken_ms: when this process took it over from one that had ended, ms since 1970; 0 if it did not.
        outage_used_ms: that one may have used the outage lane before this time, and not from it on; 0: it did not.
    """

    serial: int
    token: str
    terms: Terms
    pending_renewal_id: str
    lease: OwnLease
    generation: int
    is_recorded: bool = False
    clocks_s: tuple[float, float] = (0.0, 0.0)
    taken_ms: int = 0
    outage_used_ms: int = 0

    @classmethod
    def granted(cls, terms: Terms, config: PoolConfig, token: str, serial: int, generation: int) -> HeldLease:
        """Return the lease with these *terms* that was granted to the claim with *token*."""
        layout = config.layout
        # 0 is not a valid id, and without a sequence tick 0 of worker 0 has no other
        lowest = 0 if layout.sequences > 1 else 1
        opens = tuple(max(lowest, layout.first_tick_from(ms)) for ms in terms.lanes_ms)
        lease = OwnLease(config.name, terms.worker, hash_of(token), 0, 0, opens, "", -1)
        return cls(serial, token, terms, "", lease, generation).renewed(terms, layout)

    def renewed(self, terms: Terms, layout: Layout) -> HeldLease:
        """Return this lease after a reply to its pending renewal.

        The beginning of its outage lane may be later than before as long as that lane is not reserved.
        """
        opens, outage_until_ms = self.lease.opens, terms.outage_until_ms or 0
        lease = self.lease._replace(
            until=layout.first_tick_from(terms.until_ms),
            until_ms=terms.until_ms,
            opens=(*opens[:-1], max(opens[-1], layout.first_tick_from(terms.lanes_ms[-1]))),
            incarnation=terms.incarnation,
            renewals=self.lease.renewals + 1,
            outage_until=layout.first_tick_from(outage_until_ms) if outage_until_ms else 0,
            outage_until_ms=outage_until_ms,
        )
        return self._replace(terms=terms, pending_renewal_id="", lease=lease)

    @property
    def lanes_ms(self) -> tuple[int, ...]:
        """Begin of the reservation of each lane, ms since 1970."""
        return self.terms.lanes_ms

    @property
    def outage_lane_ms(self) -> tuple[int, int]:
        """Beginning and end of the reservation in its outage lane; the end is 0 if it has none."""
        return self.lanes_ms[-1], self.lease.outage_until_ms

    def credentials(self, stats: WorkerStats) -> Credentials:
        """Return what a crash record says of this lease."""
        return Credentials(self.token, self.terms, self.pending_renewal_id, clocks_s=self.clocks_s, stats=stats)

    @classmethod
    def taken_over(cls, found: Credentials, config: PoolConfig, serial: int, generation: int) -> HeldLease:
        """Return the lease in a crash record for a process that takes it over.

        That process has the rest of the outage lane. The other lanes open only where what the process before had ends:
        nothing says how far it used them.
        """
        held = cls.granted(found.terms, config, found.token, serial, generation)
        lease, ordinary = held.lease, config.ordinary_lanes
        opens = (*[lease.until] * ordinary, *lease.opens[ordinary:])
        return held._replace(
            pending_renewal_id=found.pending_renewal_id,
            lease=lease._replace(opens=opens),
            clocks_s=found.clocks_s,
            outage_used_ms=found.outage_used_ms,
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
