"""A lease as its holder has it: what users see of it, and what only the runtime may know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of this process to one worker id.

    Attributes:
        pool, worker: the pool, and the worker id.
        token_hash: names the claim without revealing its token; hex.
        until: the first tick that is not reserved any more.
        until_ms: the same in ms since 1970.
        opens: for each lane (namespace) the first tick that was available when it was claimed.
        incarnation: of the pool, when the lease was last renewed.
        renewals: how many there have been.
    """

    pool: str
    worker: int
    token_hash: str
    until: int
    until_ms: int
    opens: tuple[int, ...]
    incarnation: str
    renewals: int


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease with its secrets, and with what the runtime has to know of it.

    Attributes:
        serial: counts the claims of this process, and of those that it was forked from.
        generation: of the process that claimed it, by the fork guard: no other may give it back.
        marks: where each lane's mark is recorded before its ids can be taken, in case of a crash; None if nowhere.
    """

    serial: int
    token: str
    renewal_id: str
    pending_renewal_id: str
    lanes_ms: tuple[int, ...]
    lease: Lease
    generation: int
    marks: memoryview | None = None


class Claimed(NamedTuple):
    """Result of LeaseManager.claim().

    Attributes:
        settling_ms: 0 if a lease is held, else how long the pool asks to wait before the next attempt.
        replaced: the lease that was held until now and is to be released; no ids are made of it any more.
    """

    settling_ms: int = 0
    replaced: HeldLease | None = None
