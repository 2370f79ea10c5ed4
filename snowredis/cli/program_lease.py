"""The worker id of a program that `run` starts: a lease that is renewed here, while the program makes the ids.

Which ticks the program used is unknown here, so no mark is ever lowered: after close() the worker id is available again
when its reservation ends.
"""

from __future__ import annotations

import time
from typing import Any, Self

from snowredis.connection import connect
from snowredis.core.layout import layout_spec
from snowredis.errors import LeaseLost
from snowredis.process.clock import now_ms
from snowredis.snowflake.lease.held import OwnLease

_EVERY_S = 0.1


class ProgramLease:
    """A leased worker id, claimed when it is made, and renewed in the background.

    Ids with this worker and datacenter, and 0 in the backup bits, may be made at times from ``from_ms`` on, which have
    passed then, and before ``until_ms``, which each renewal moves on.

    Blocks and raises:
        as SnowflakeGenerator.claim().
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        # a generator for this lease alone: it makes no ids
        self._ids = connect(**settings)
        try:
            self._ids._lease_manager.slot.lend()
            self._lease = self._ids.claim()
            # the end of the reservation on the wall clock and on the monotonic one
            self._end = self._end_of(self._lease)
            self.ttl_ms, self.worker = self._ids.ttl_ms, self._lease.worker
            self.layout_spec, self.datacenter = (
                layout_spec(self._ids.layout),
                self._ids._lease_manager.config.datacenter,
            )
            self.from_ms = self._ids.layout.ms_at(self._lease.opens[0])
            self._wait_for_first_tick()
        except BaseException:
            self.close()
            raise

    def _wait_for_first_tick(self) -> None:
        while (wait_ms := self.from_ms - now_ms()) > 0:
            if not self.left_s:
                raise LeaseLost(self._lease.pool, self.worker, "it was lost before its first tick")
            time.sleep(min(wait_ms / 1000, _EVERY_S))

    @staticmethod
    def _end_of(lease: OwnLease) -> tuple[int, float]:
        return lease.until_ms, time.monotonic() + lease.until_ms / 1000 - time.time()

    @property
    def until_ms(self) -> int:
        """End of the reservation, ms since 1970."""
        return self._end[0]

    @property
    def left_s(self) -> float:
        """Seconds until the reservation ends, if it is not renewed before; 0 if it has, or the worker id is lost."""
        now = self._ids.lease
        if now is None or now.token_hash != self._lease.token_hash:
            return 0.0
        if now.until_ms != self._end[0]:
            self._end = self._end_of(now)
        until_ms, until_s = self._end
        # the clock may be set back
        return max(0.0, min(until_ms / 1000 - time.time(), until_s - time.monotonic()))

    def close(self) -> None:
        """Release the worker id after the end of the program. Never raises, blocks as SnowflakeGenerator.close()."""
        self._ids.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
