"""A lease holder by hand: speaks the protocol to any store, one call at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from snowredis.lease.model import Answer, ClaimRequest, ReleaseRequest, RenewRequest, Seen, Store

_numbers = itertools.count(1)


def fresh_hex() -> str:
    return f"{next(_numbers):032x}"


@dataclass
class Holder:
    """One process' side. Attributes are what it knows; tests may tamper with them."""

    store: Store
    now_ms: Callable[[], int]
    token: str = field(default_factory=fresh_hex)
    tip: str = ""
    worker: int = -1
    until_ms: int = 0
    lanes_ms: tuple[int, ...] = ()
    seen: Seen = field(default_factory=Seen)

    def ask_claim(self, *, ahead_ms: int = 0, wait_ms: int = 10**9) -> Answer:
        now = self.now_ms() + ahead_ms
        answer = self.store.claim(ClaimRequest(self.token, now, now, wait_ms, '{"host":"h"}'), self.seen)
        return self._learn(answer)

    def claim(self, *, ahead_ms: int = 0, wait_ms: int = 10**9) -> Holder:
        answer = self.ask_claim(ahead_ms=ahead_ms, wait_ms=wait_ms)
        assert answer.status == "ok", answer
        self.worker, self.until_ms = int(answer.rest[0]), int(answer.rest[1])
        self.lanes_ms, self.tip = tuple(map(int, answer.rest[2].split(","))), answer.rest[3]
        return self

    def ask_renew(self, next_tip: str = "", *, ahead_ms: int = 0) -> Answer:
        next_tip = next_tip or fresh_hex()
        request = RenewRequest(
            worker=self.worker,
            token=self.token,
            tip=self.tip,
            next_tip=next_tip,
            caller_ms=self.now_ms() + ahead_ms,
            held_until_ms=self.until_ms,
            held_lanes_ms=self.lanes_ms,
            stats="7,3,-2,0,0",
            owner='{"host":"h"}',
        )
        answer = self._learn(self.store.renew(request, self.seen))
        if answer.status == "ok":
            self.tip, self.until_ms = next_tip, int(answer.rest[0])
        return answer

    def release(self, *marks_ms: int, unknown: bool = False, tip: str | None = None) -> str:
        marks = None if unknown else marks_ms or (0,) * len(self.lanes_ms)
        tip = self.tip if tip is None else tip
        request = ReleaseRequest(self.worker, self.token, tip, "", self.now_ms(), marks, "7,0,0,0,0")
        return self._learn(self.store.release(request, self.seen)).status

    def _learn(self, answer: Answer) -> Answer:
        if answer.status != "signature":
            self.seen = answer.seen
        return answer
