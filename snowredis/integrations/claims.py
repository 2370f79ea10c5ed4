"""The claim of a process that is about to serve requests: an attempt, never a condition of its start.

An error at the start of one worker ends gunicorn, with all workers that make ids. So a process that gets no worker id
in time serves without one and says so once. The attempts go on in a thread: where readiness depends on ids, no request
would come that claims.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from typing import Any

from snowredis.errors import GeneratorClosed, PoolExhausted, StoreUnavailable
from snowredis.process.log import log

# a process takes requests after this time at the latest
CLAIM_TIMEOUT_S = 5.0
# between two attempts of a process that does not serve yet; of one that serves, so that a fleet does not load Redis
ASK_AGAIN_S, SERVING_PAUSE_S = 0.2, (1.0, 3.0)


def claim_within(limit_s: float, generators: Iterable[Any]) -> None:
    """Claim a worker id for each of *generators* that has none; those of other kinds than Snowflakes claim nothing.

    Never raises. If a claim takes longer, or is refused, a warning says so once, and attempts go on in the background:
    the next id works as soon as there is a worker id, and raises until then.

    Blocks:
        for *limit_s* seconds at most.
    """
    from snowredis.snowflake.generator import SnowflakeGenerator

    until_s = time.monotonic() + limit_s
    claims = [_StartClaim(each) for each in generators if isinstance(each, SnowflakeGenerator)]
    for claim in claims:
        claim.start()
    for claim in claims:
        claim.wait(until_s)


class _StartClaim:
    """The claim of one generator: in a thread, until it has a worker id or is closed."""

    def __init__(self, generator: Any) -> None:
        self._generator, self._reason = generator, "Redis did not reply yet"
        # set if waiting longer is of no use; and if the process serves without a worker id
        self._decided, self._claimed, self._serves = threading.Event(), False, False

    def start(self) -> None:
        try:
            threading.Thread(target=self._run, name="snowredis-claim", daemon=True).start()
        except RuntimeError as error:
            # the system refuses a thread; the first id claims
            self._reason = str(error)
            self._decided.set()

    def wait(self, until_s: float) -> None:
        """Wait until there is a worker id, or until *until_s* (monotonic); warn if there is none."""
        self._decided.wait(max(0.0, until_s - time.monotonic()))
        if not self._claimed:
            self._serves = True
            log.warning(
                "pool %s: this process starts without a worker id and serves; ids raise an error until it has one, "
                "which it goes on trying to get: %s",
                self._generator.pool,
                self._reason,
            )

    def _run(self) -> None:
        while not self._is_over():
            time.sleep(random.uniform(*SERVING_PAUSE_S) if self._serves else ASK_AGAIN_S)
        self._decided.set()

    def _is_over(self) -> bool:
        """Claim; return whether there is a worker id, or will be none."""
        try:
            worker = self._generator.claim().worker
        except GeneratorClosed:
            self._claimed = True
            return True
        # whatever it is, an attempt is no condition of a start
        except Exception as error:  # noqa: BLE001
            self._reason = str(error)
            # others than these do not pass by themselves within a start
            if not isinstance(error, PoolExhausted | StoreUnavailable):
                self._decided.set()
            return False
        self._claimed = True
        if self._serves:
            log.warning("pool %s: this process has worker id %d now, and makes ids", self._generator.pool, worker)
        return True
