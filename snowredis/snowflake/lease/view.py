"""View of a pool: what its newest reply showed, and what the clocks of this host say since then."""

from __future__ import annotations

from snowredis.process.log import log
from snowredis.process.names import boot_id
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.protocol.replies import Reply, Seen

# how much wall clock and monotonic clock may differ since a reply, and by drift: more was a step or a stop
CLOCKS_AGREE_S = 1.0
CLOCK_DRIFT = 0.001


class PoolView:
    """The newest reply of one generator's pool.

    Attributes:
        seen: the state of the pool, which every request carries (step 3, lose).
        floor_ms: the pool's floor, ms since 1970.
        renewed_at_s: the monotonic clock at the last reply that granted something.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seen = Seen()
        self.floor_ms = 0
        # the Redis clock, ms since 1970, minus our monotonic clock; None before the first reply
        self._redis_lead_ms: float | None = None
        self.renewed_at_s = -1e9
        # wall clock and monotonic clock at the last reply that granted something, and the run of the kernel; "" if that
        # was unknown, as without a free descriptor
        self._clocks_s, self._boot_id = (0.0, 0.0), ""

    def learn(self, reply: Reply, sent_s: float) -> None:
        """Store what *reply* shows, to a request that was sent at *sent_s* of the monotonic clock."""
        self.seen, self.floor_ms = reply.seen, reply.floor_ms
        # the Redis clock was read during the round trip. A slow reply says little, so it only bounds what is known
        least_ms = reply.redis_ms - self._context.clock.monotonic() * 1000
        most_ms = reply.redis_ms - sent_s * 1000
        known_ms = (least_ms + most_ms) / 2 if self._redis_lead_ms is None else self._redis_lead_ms
        self._redis_lead_ms = min(max(known_ms, least_ms), most_ms)

    def log_alarm(self, reply: Reply) -> None:
        """Log the alarm that *reply* raises, if any. Called when all that the reply granted is stored."""
        if reply.alarm:
            log.critical("pool %s: ALARM: %s (ms since 1970)", self._context.config.name, reply.alarm.text)

    @property
    def offset_ms(self) -> int:
        """Return the lead of this host's clock over the Redis clock now, in ms; meaningless before the first reply."""
        return self._context.now_ms() - round(self._context.clock.monotonic() * 1000 + (self._redis_lead_ms or 0.0))

    def note_renewed(self) -> tuple[float, float]:
        """Note that a reply granted something; return wall clock and monotonic clock, in s."""
        self.renewed_at_s = self._context.clock.monotonic()
        self._clocks_s, self._boot_id = (self._context.clock.time(), self.renewed_at_s), boot_id()
        return self._clocks_s

    def note_taken(self, clocks_s: tuple[float, float]) -> None:
        """Note that a lease was taken over, whose process had its last reply when the clocks showed *clocks_s*."""
        self._clocks_s, self._boot_id = clocks_s, boot_id()

    @property
    def clocks_agree(self) -> bool:
        """True if this machine ran without a stop since the last reply, as far as its clocks can tell.

        After a snapshot of the machine was resumed, or the machine was suspended, they differ.
        """
        here = boot_id()
        return self.agree_since(self._clocks_s) and (not here or not self._boot_id or here == self._boot_id)

    def agree_since(self, clocks_s: tuple[float, float]) -> bool:
        """Return whether wall clock and monotonic clock went on alike since they showed *clocks_s*."""
        wall_s, steady_s = clocks_s
        passed_s = self._context.clock.monotonic() - steady_s
        difference_s = abs(self._context.clock.time() - wall_s - passed_s)
        return difference_s <= CLOCKS_AGREE_S + passed_s * CLOCK_DRIFT

    @property
    def renewed_ago_s(self) -> float:
        """Time since the last renewal or claim that succeeded."""
        return self._context.clock.monotonic() - self.renewed_at_s
