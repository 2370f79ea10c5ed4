"""The state of a pool and of the Redis clock, as the newest reply showed them."""

from __future__ import annotations

import logging

from snowredis.lease.replies import Reply, Seen
from snowredis.runtime.context import Context

log = logging.getLogger("snowredis")


class PoolView:
    """The newest reply of one generator's pool.

    Attributes:
        seen: the state of the pool, which every request carries (R10).
        floor_ms: the pool's floor, ms since 1970.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seen = Seen()
        self.floor_ms = 0
        # the Redis clock in ms since 1970, and the moment of our monotonic clock at which it showed that
        self._redis_at = (0, context.clock.monotonic())

    def learn(self, reply: Reply, sent_s: float) -> None:
        """Store what *reply* shows, to a request that was sent at *sent_s* of the monotonic clock."""
        self.seen, self.floor_ms = reply.seen, reply.floor_ms
        # about in the middle of the round trip
        self._redis_at = (reply.redis_ms, (sent_s + self._context.clock.monotonic()) / 2)
        if reply.alarm:
            log.critical("pool %s: ALARM: %s (ms since 1970)", self._context.config.name, reply.alarm.text)

    @property
    def offset_ms(self) -> int:
        """Return the lead of this host's clock over the Redis clock now, in ms; meaningless before the first reply."""
        redis_ms, at_s = self._redis_at
        elapsed_s = self._context.clock.monotonic() - at_s
        return self._context.now_ms() - redis_ms - round(elapsed_s * 1000)
