"""Repeat short transactions that failed for a lock: they give up soon, so that writes do not queue behind them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import sqlalchemy as sa

from snowredis.errors import MigrationError

__all__ = ["retried"]

# how long all attempts may take: a transaction that is open for longer than that is somebody's mistake
LIMIT_S = 600.0
# of waits between attempts
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
# PostgreSQL: lock_not_available, deadlock_detected, serialization_failure
_PG_STATES = ("55P03", "40P01", "40001")
# MariaDB: lock wait timeout, deadlock, lock wait timeout of DDL with NOWAIT or WAIT
_MARIADB_NUMBERS = (1205, 1213)


def retried(what: str, attempt: Callable[[], None], limit_s: float = LIMIT_S) -> None:
    """Call *attempt*, again while it fails for a lock that somebody holds.

    Raises:
        MigrationError: the lock could not be had within *limit_s*.
    """
    deadline_s, wait_s = time.monotonic() + limit_s, _FIRST_WAIT_S
    while True:
        try:
            return attempt()
        except sa.exc.DBAPIError as error:
            if not is_lock_error(error):
                raise
            if time.monotonic() > deadline_s:
                raise MigrationError(
                    f"could not {what}: another transaction held a lock on the tables for {limit_s:.0f} s. This step "
                    "changed nothing; end long transactions (pg_stat_activity, SHOW PROCESSLIST), and run the same "
                    "command again."
                ) from error
        time.sleep(wait_s * random.uniform(0.5, 1))
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def is_lock_error(error: sa.exc.DBAPIError) -> bool:
    """Return whether a statement failed for a lock, and so can succeed later."""
    original = error.orig
    if getattr(original, "sqlstate", None) in _PG_STATES:
        return True
    number = original.args[0] if original is not None and original.args else None
    return number in _MARIADB_NUMBERS or "database is locked" in str(original)
