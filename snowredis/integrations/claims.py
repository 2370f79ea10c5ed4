"""The claim of a process that is about to serve requests: an attempt, never a condition of its start.

An error at the start of one worker ends gunicorn, with all workers that make ids. So a process that gets no worker id
in time serves without one and says so once. Its heartbeat goes on trying: where readiness depends on ids, no request
would come that claims.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from snowredis.process.log import log

if TYPE_CHECKING:
    from snowredis.snowflake.generator import SnowflakeGenerator

# a process takes requests after this time at the latest
CLAIM_TIMEOUT_S = 5.0
_EVERY_S = 0.02
# generators that got no worker id in time: a later part of the start, such as lifespan() after gunicorn's hooks, waits
# for none of them again
_late: weakref.WeakSet[SnowflakeGenerator] = weakref.WeakSet()


def claim_within(limit_s: float, generators: Iterable[Any]) -> None:
    """Claim a worker id for each of *generators* that has none; those of other kinds than Snowflakes claim nothing.

    Never raises. If a claim takes longer, or is refused, a warning says so once, and the heartbeat goes on trying: the
    next id works as soon as there is a worker id, and raises until then.

    Blocks:
        for *limit_s* seconds at most, and once for each generator that gets none in time.
    """
    from snowredis.snowflake.generator import SnowflakeGenerator
    from snowredis.snowflake.upkeep.pace import is_for_long

    until_s = time.monotonic() + limit_s
    claiming = [each for each in generators if isinstance(each, SnowflakeGenerator) and each not in _late]
    for each in claiming:
        each.claim_in_background()
    for each in claiming:
        while (is_waiting := each.lease is None and not each.closed) and time.monotonic() < until_s:
            if is_for_long(each.claim_failure):
                break
            time.sleep(_EVERY_S)
        if is_waiting:
            _late.add(each)
            log.warning(
                "pool %s: this process starts without a worker id and serves; ids raise an error until it has one, "
                "which it goes on trying to get: %s",
                each.pool,
                each.claim_failure or "Redis did not reply yet",
            )
