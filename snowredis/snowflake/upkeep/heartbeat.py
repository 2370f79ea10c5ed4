"""The thread that renews the lease of one generator, or claims another: it calls beat() through the generator."""

from __future__ import annotations

import logging

from snowredis.process.exit import EXIT
from snowredis.process.heartbeat import Heartbeat
from snowredis.process.log import log
from snowredis.process.threads import locked, may_start_threads
from snowredis.snowflake.ids.fast_path import FastPath
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.upkeep.pace import Pace


class HeartbeatThread:
    """One thread at most, where the system allows one.

    Attributes:
        heartbeat: what the thread runs; None if there is no thread.
    """

    def __init__(self, context: Context, leases: LeaseManager, generator: FastPath, pace: Pace) -> None:
        self._context, self._leases, self._generator, self._pace = context, leases, generator, pace
        self.heartbeat: Heartbeat | None = None
        # whether a refused thread was logged
        self._refused = False

    @property
    def runs(self) -> bool:
        """True if a thread renews the lease, or claims another one."""
        return self.heartbeat is not None

    def start(self, first_s: float | None = None) -> None:
        """Start the thread, unless one runs or the clock is a test clock.

        Its first call comes after *first_s*.

        Called after each claim and each renewal that a call needs: where the system refuses a thread, leases are
        renewed inside next_id() only, until it allows one. A warning says so, once.
        """
        heartbeat = locked(self._generator._lock, self._new)
        if heartbeat is not None and self.heartbeat is heartbeat:
            EXIT.arm()
            try:
                first_s = self._pace.beat_in_s(is_first=True) if first_s is None else first_s
                heartbeat.start(first_s, f"snowredis-{self._context.config.name}")
            except RuntimeError as error:
                if self.heartbeat is heartbeat:
                    self.heartbeat = None
                text = "no heartbeat thread (%s): leases are renewed only while ids are made"
                is_news = not self._refused and may_start_threads()
                log.log(logging.WARNING if is_news else logging.DEBUG, text, error)
                self._refused = True

    def _new(self) -> Heartbeat | None:
        if self.heartbeat is not None or self._leases.closed or not self._context.clock.background:
            return None
        self.heartbeat = heartbeat = Heartbeat(self._context.weak_generator, self._leases.abandon, self._context.guard)
        return heartbeat
