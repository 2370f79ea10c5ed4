"""The requests of one generator to one server: named, numbered, and repeated until they are answered.

Every request tells which segment came last and how far the numbers are known to be handed out, so that the script
notices what Redis forgot. A request for a segment is never abandoned: it is repeated with its id, and gets the same
segment.

One caller at a time: the prefetcher's thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from snowredis.runtime.clock import Clock
from snowredis.segment.model import MOST_SEGMENTS, TagStore, TakeRequest
from snowredis.segment.replies import Copied, Granted, TakeReply


class TagView(NamedTuple):
    """Progress of the whole tag in a reply: its next position at a time of the Redis clock, ms since 1970."""

    redis_ms: int
    incarnation: str
    next: int


class TagClient:
    """One generator, as one server knows it.

    Args:
        store: of the server.
        random_name: returns a random name, hex, that no other process has.
        owner: returns JSON that names this process, for people.
        seen: the highest end of a segment on this server that is known.
    """

    def __init__(
        self, store: TagStore, random_name: Callable[[], str], owner: Callable[[], str], seen: int = 0
    ) -> None:
        self.store = store
        self._random_name, self._owner = random_name, owner
        self.seen = seen
        # the first reply of an incarnation, and the newest one
        self.since: TagView | None = None
        self.view: TagView | None = None
        self._begin()

    def _begin(self) -> None:
        """Take a name that was never used."""
        self._name, self._request_id = self._random_name(), ""
        self._received, self._incarnation = 0, ""
        self._segments: tuple[tuple[int, int], ...] = ()

    def ask(self, wanted: int) -> TakeReply:
        """Ask for a segment of *wanted* positions; or report, if that is 0. Blocks for a round trip.

        Raises StoreUnavailable, TagMismatch.
        """
        if wanted and not self._request_id:
            self._request_id = self._random_name()
        request = TakeRequest(
            self._name,
            self._received,
            self._request_id,
            self._segments,
            self._incarnation,
            self.seen,
            wanted,
            self._owner(),
        )
        reply = self.store.take(request)
        self._learn(reply)
        return reply

    def _learn(self, reply: TakeReply) -> None:
        self.seen = max(self.seen, reply.next)
        self.view = TagView(reply.redis_ms, reply.incarnation, reply.next)
        if self.since is None or self.since.incarnation != reply.incarnation:
            self.since = self.view
        match reply:
            case Granted():
                self._received += 1
                newest = (reply.from_position, reply.until_position)
                self._segments = (*self._segments, newest)[-MOST_SEGMENTS:]
                self._incarnation = reply.incarnation
                self._request_id = ""
            case Copied():
                self._begin()


def random_name(random_bytes: Callable[[int], bytes], clock: Clock) -> str:
    """Return 128 random bits, hex. The clocks are mixed in: two clones of a machine may share their random state."""
    seed = f"{random_bytes(16).hex()} {clock.time_ns()} {clock.monotonic()!r}"
    return hashlib.sha256(seed.encode()).hexdigest()[:32]
