"""worker_id(): a worker id for a generator that is not ours, in this process or in another program.

The lease is that of a SnowflakeGenerator that makes no ids. Which ticks the other generator used is unknown here, so no
mark is ever lowered: after close() the worker id is available again when its reservation ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Self

from snowredis.connection import connect
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import utc_from_ms
from snowredis.errors import ConfigError, LeaseExpired, LeaseLost
from snowredis.process.clock import now_ms
from snowredis.process.fork import GUARD
from snowredis.snowflake.lease import OwnLease

log = logging.getLogger("snowredis")

# how often the thread of on_loss looks
_EVERY_S = 0.1
DEFAULT_GRACE_S = 2.0


class WorkerId:
    """A leased worker id, renewed in the background. Made by worker_id().

    Ids with this worker and datacenter, and 0 in the backup bits, may be made at times from ``from_ms`` on, which have
    passed when this object is made, and before ``until_ms``, which each renewal moves on.
    """

    def __init__(self, settings: dict[str, Any], grace: float | None, on_loss: Callable[[], object] | None) -> None:
        # a generator for this lease alone: another program makes the ids
        self._ids = connect(**settings)
        self._ids._lease_manager.slot.lend()
        if grace is None:
            grace = min(DEFAULT_GRACE_S, self._ids.ttl_ms / 4000)
        if not 0 <= grace < self._ids.ttl_ms / 2000:
            raise ConfigError(f"grace must be 0 or more, and less than half of the ttl, not {grace!r} s")
        self.grace = grace
        self.closed = False
        self._lease: OwnLease | None = None
        self._until_ms, self._until_monotonic_s = 0, 0.0
        GUARD.reset_in_child(self)
        try:
            self.claim()
            if on_loss is not None:
                threading.Thread(
                    target=self._call_on_loss, args=(on_loss,), name="snowredis-worker-id", daemon=True
                ).start()
        except BaseException:
            self.close()
            raise

    def claim(self) -> None:
        """Claim a worker id, after the last id made with the one before, and wait until its first tick has passed.

        Blocks and raises as SnowflakeGenerator.claim().
        """
        before, now = self._lease, self._ids.lease
        if before is not None and now is not None and now.token_hash == before.token_hash:
            # which ticks were used is unknown to whoever makes ids from now on, and the clock may have been set back:
            # a new reservation has none of them
            self._ids.suspend()
            self._ids.resume()
        lease = self._ids.claim()
        self._lease, self._until_ms = lease, 0
        while (wait_ms := self.from_ms - now_ms()) > 0:
            if not self.left_s:
                raise LeaseLost(lease.pool, lease.worker, "it was lost before its first tick")
            time.sleep(min(wait_ms / 1000, _EVERY_S))

    @property
    def layout(self) -> Layout:
        """Layout of the pool."""
        return self._ids.layout

    @property
    def layout_spec(self) -> str:
        """The layout as text, as `layout` of connect() takes it."""
        return layout_spec(self.layout)

    @property
    def ttl_ms(self) -> int:
        """Length of its lease, in ms."""
        return self._ids.ttl_ms

    @property
    def worker(self) -> int:
        """The worker id."""
        return self._held.worker

    @property
    def datacenter(self) -> int:
        """The datacenter of the pool."""
        return self._ids._lease_manager.config.datacenter

    @property
    def from_ms(self) -> int:
        """Ms since 1970 from which on its ids are not those of an earlier process."""
        return self.layout.ms_at(self._held.opens[0])

    @property
    def until_ms(self) -> int:
        """End of the reservation, ms since 1970; in the past if the worker id is lost."""
        return self._held.until_ms if self.left_s else 0

    @property
    def valid_until(self) -> datetime:
        """``until_ms`` as an aware datetime in UTC."""
        return utc_from_ms(self.until_ms)

    @property
    def left_s(self) -> float:
        """Seconds until the reservation ends, if it is not renewed before; 0 if it has, or the worker id is lost."""
        lease, now = self._lease, self._ids.lease
        if self.closed or lease is None or now is None or now.token_hash != lease.token_hash:
            return 0.0
        left_s = now.until_ms / 1000 - time.time()
        if now.until_ms != self._until_ms:
            self._lease, self._until_ms = now, now.until_ms
            self._until_monotonic_s = time.monotonic() + left_s
        # the clock may be set back
        return max(0.0, min(left_s, self._until_monotonic_s - time.monotonic()))

    @property
    def _held(self) -> OwnLease:
        if self._lease is None:
            raise LeaseExpired(self._ids.pool, -1, "a forked child has none until it calls claim()")
        return self._lease

    def _after_fork(self) -> None:
        self._lease = None

    def _call_on_loss(self, on_loss: Callable[[], object]) -> None:
        while self.left_s > self.grace:
            time.sleep(_EVERY_S)
        # at exit, the generator is closed without this object
        if not (self.closed or self._ids.closed):
            log.error("pool %s: worker id %d is lost", self._held.pool, self.worker)
            on_loss()

    def close(self) -> None:
        """Release the worker id after the last id made with it. Never raises, blocks as SnowflakeGenerator.close()."""
        self.closed = True
        self._ids.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def worker_id(
    pool: str | None = None, *, grace: float | None = None, on_loss: Callable[[], object] | None = None, **settings: Any
) -> WorkerId:
    """Lease a worker id for a generator of your own. Settings that are not given are read from SNOWREDIS_* variables.

    Args:
        pool: its name.
        grace: how many seconds before the end of the reservation the worker id counts as lost; by default 2, or a
            quarter of a ttl below 8.
        on_loss: called once, in a thread, when the worker id is lost: it was given to another process, or could not be
            renewed. From then on no id may be made with it.
        settings: arguments of connect().

    Blocks and raises:
        as SnowflakeGenerator.claim(); ConfigError for a setting that is not valid.
    """
    return WorkerId({"pool": pool, **settings}, grace, on_loss)
