"""Lease holder for tests: makes the calls of the protocol to any store, one at a time."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from snowredis.snowflake.protocol import messages

_R = TypeVar("_R", bound=messages.Reply)

_numbers = itertools.count(1)


def fresh_hex() -> str:
    """Return another name at each call. The name of an incarnation has some of its digits, so all of them differ."""
    number = next(_numbers)
    return f"{hashlib.sha256(b'%d' % number).hexdigest()[:24]}{number:08x}"


def create(store: messages.Store, caller_ms: int) -> messages.Created | messages.Exists:
    """Create the pool of *store*, as a person does."""
    reply: messages.Created | messages.Exists = store.ask(messages.CreateRequest(messages.Seen(), caller_ms))
    return reply


@dataclass
class Holder:
    """State of one process. Tests may change the attributes."""

    store: messages.Store
    now_ms: Callable[[], int]
    token: str = field(default_factory=fresh_hex)
    terms: messages.Terms = messages.NO_TERMS
    seen: messages.Seen = field(default_factory=messages.Seen)
    owner: str = '{"host":"h"}'
    options: str = "og"

    @property
    def worker(self) -> int:
        return self.terms.worker

    @property
    def until_ms(self) -> int:
        return self.terms.until_ms

    @property
    def lanes_ms(self) -> tuple[int, ...]:
        return self.terms.lanes_ms

    @property
    def outage_ms(self) -> int:
        return self.terms.outage_until_ms or 0

    def set(self, **values: Any) -> Holder:
        """Change the lease that the next requests present."""
        self.terms = self.terms._replace(**values)
        return self

    def ask_claim(self, *, ahead_ms: int = 0, now: bool = False) -> messages.Granted | messages.ClaimRefused:
        """Ask for a lease; *now*: for lanes that are usable at once."""
        options = self.options + messages.NOW * now
        request = messages.ClaimRequest(self.seen, self.now_ms() + ahead_ms, self.token, self.owner, options=options)
        return self._learn(self.store.ask(request))

    def claim(self, *, ahead_ms: int = 0, now: bool = False) -> Holder:
        answer = self.ask_claim(ahead_ms=ahead_ms, now=now)
        assert isinstance(answer, messages.Granted), answer
        self.terms = answer.terms
        return self

    def settling(self) -> messages.Settling:
        """Ask for a claim, which has to wait until the pool has settled; return the reply."""
        answer = self.ask_claim()
        assert isinstance(answer, messages.Settling), answer
        return answer

    def ask_renew(self, pending: str = "", *, ahead_ms: int = 0) -> messages.Renewed | messages.Lost:
        pending = pending or fresh_hex()
        now_ms, stats = self.now_ms() + ahead_ms, messages.WorkerStats(7, 3, -2, 0, 0)
        request = messages.RenewRequest(self.seen, now_ms, self.token, self.owner, self.terms, pending, stats)
        answer: messages.Renewed | messages.Lost = self._learn(self.store.ask(request))
        if isinstance(answer, messages.Renewed):
            self.terms = answer.terms
        return answer

    def lost(self) -> messages.Lost:
        """Ask for a renewal, which has to be refused; return the reply."""
        answer = self.ask_renew()
        assert isinstance(answer, messages.Lost), answer
        return answer

    def release(self, opened: str | None = None, *, renewal_id: str | None = None, reclaimed: bool = False) -> bool:
        """Release the worker id; return true if it was held. *opened*: as in ReleaseRequest; by default no lane was."""
        opened = "0" * len(self.lanes_ms) if opened is None else opened
        terms = self.terms if renewal_id is None else self.terms._replace(renewal_id=renewal_id)
        opened, stats = messages.KILLED if reclaimed else opened, messages.WorkerStats(ids_made=7)
        request = messages.ReleaseRequest(self.seen, self.now_ms(), self.token, terms, "", opened, stats)
        return isinstance(self._learn(self.store.ask(request)), messages.Released)

    def _learn(self, answer: _R) -> _R:
        self.seen = answer.seen
        return answer
