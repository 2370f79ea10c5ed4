"""What `whois` answers: an id taken apart, and which process had its worker id at its tick."""

from __future__ import annotations

from dataclasses import dataclass

from snowredis.core.layout import Parts

CERTAINTIES = ("certain", "probable", "unknown")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that had a worker id. Times are ms since 1970.

    Attributes:
        worker, host, pid, label: which worker id, and who says to have it; untrusted text.
        from_ms: when it claimed it, on the Redis clock; None if that is not known any more.
        to_ms: when it gave it back, or when it was found out that its lease had ended; None if it still has it, or
            if that is not known (see held).
        held: whether it has it now.
        first_ms, until_ms: the ticks that only it may have stamped in the id's lane: [first, until).
        server: of several independent servers, which.
    """

    worker: int
    host: str
    pid: int
    label: str
    from_ms: int | None
    to_ms: int | None
    held: bool
    first_ms: int
    until_ms: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class Whois:
    """Who made an id, as far as can be known.

    Attributes:
        id: the id.
        parts: what it is made of, in the pool's layout; None if it is none of that layout.
        holder: who made it, if it was made in this pool; None if that is unknown.
        certainty: one of CERTAINTIES. certain: no other process of this pool can have. probable: the best reading of
            what is left of the history. unknown: it cannot be known.
        reason: why so, for people; may hold untrusted text.
        candidates: under "unknown" those who may have made it.
    """

    id: int
    parts: Parts | None
    holder: Holder | None
    certainty: str
    reason: str
    candidates: tuple[Holder, ...] = ()
