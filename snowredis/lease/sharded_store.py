"""One pool over several Redis servers that know nothing of each other.

Each server has a share of the worker ids for itself: server i of n those with w % n == i. So no
server has to agree with another, and any of them may be away or lose everything: the rules of
the lease hold on each by itself. Whoever finds its own server away takes a worker id of another.

That rests on one list, in one order, in every process: see lease.list_check.

Blocks as its servers do, one after the other; has no thread and no lock of its own. One caller
at a time, as the lease lease_manager does it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.lease.list_check import ListCheck, Server
from snowredis.lease.model import (
    NOTHING_MADE,
    Answer,
    ClaimRequest,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    Seen,
)

# a worker id that can be used sooner is taken as it is; for a later one, the other servers are asked first
SOON_MS = 1_000
# so often a server that is away or full is asked again while another lets newcomers wait
ASK_AGAIN_MS = 500


class ShardedStore:
    """A Store over independent servers.

    Args:
        servers: two or more, in the same order in every process; made with ``share=(index, count)``.
        config: of the whole pool, without a share.
        choose: a number below the given one, for the server to begin with.

    Raises:
        ConfigError: one server, the same one twice, or shares that are not those of this order.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        config: PoolConfig,
        *,
        choose: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        count = len(servers)
        if count < 2 or [server.config.share for server in servers] != [(i, count) for i in range(count)]:
            raise ConfigError("independent servers: two or more are needed, each with the share of its place")
        self._servers = tuple(servers)
        self._config = config
        self._choose = choose
        self._seen = [Seen()] * count
        # servers that did not answer when they were asked last: others are asked before them
        self._away: set[int] = set()
        self._list = ListCheck(self._servers, config)

    @property
    def where(self) -> str:
        return ", ".join(server.where for server in self._servers)

    @property
    def config(self) -> PoolConfig:
        return self._config

    @property
    def urls(self) -> Sequence[str]:
        urls = [url for server in self._servers for url in server.urls]
        return urls if len(urls) == len(self._servers) else ()

    @property
    def redundant(self) -> bool:
        return True

    def claim(self, request: ClaimRequest, seen: Seen) -> Answer:
        """Lease a worker id of the first server that has one to be used at once; else the soonest of any.

        *seen* is not used here: what was seen of one server says nothing of another.
        """
        errors, absent = self._list.look_at_all()
        self._away.update(errors)
        late: tuple[int, int, Answer] | None = None
        others: list[Answer] = []
        try:
            # where there is no pool yet, the claim makes it
            for index in [*absent, *(index for index in self._order() if index not in absent)]:
                if index in errors:
                    continue
                try:
                    answer = self._ask(index, lambda server, seen: server.claim(request, seen))
                except StoreUnavailable as error:
                    errors[index] = error
                    if index in absent:
                        # only whoever has made the one before goes on to the next
                        errors |= dict.fromkeys(absent[absent.index(index) :], error)
                    continue
                if answer.status != "ok":
                    others.append(answer)
                    continue
                opens_in_ms = min(map(int, answer.rest[2].split(","))) - request.fit_ms
                if opens_in_ms > SOON_MS and late is not None and late[0] <= opens_in_ms:
                    self._give_back(index, answer, request)
                    continue
                if late is not None:
                    self._give_back(late[1], late[2], request)
                late = (opens_in_ms, index, answer)
                if opens_in_ms <= SOON_MS:
                    break
        except BaseException:
            if late is not None:
                self._give_back(late[1], late[2], request)
            raise
        if late is not None:
            _, index, answer = late
            worker = int(answer.rest[0]) * len(self._servers) + index
            self._list.warn_of_unseen(worker)
            return replace(answer, rest=(str(worker), *answer.rest[1:]))
        return self._refused(others, errors)

    def _refused(self, answers: list[Answer], errors: dict[int, StoreUnavailable]) -> Answer:
        """Of what servers said, what is to be done: wait, mind the clock, or give up."""
        if not answers:
            raise StoreUnavailable(
                self.where,
                "none of them can be used: " + "; ".join(f"{e.where}: {e.reason}" for e in errors.values()),
            ) from next(iter(errors.values()))
        for status in ("settling", "behind", "exhausted"):
            said = [answer for answer in answers if answer.status == status]
            if said:
                soonest = min(said, key=lambda answer: int(answer.rest[0]))
                if status == "settling" and len(said) < len(self._servers):
                    wait_ms = min(ASK_AGAIN_MS, int(soonest.rest[0]))
                    return replace(soonest, rest=(str(wait_ms), *soonest.rest[1:]))
                return soonest
        return answers[0]

    def renew(self, request: RenewRequest, seen: Seen) -> Answer:
        """Renew the lease, and look at one of the servers that were not seen yet.

        Raises LayoutMismatch, with the lease renewed, if that server is of another list: then another process may make
        the same ids.
        """
        local, index = divmod(request.worker, len(self._servers))
        answer = self._ask(index, lambda server, seen: server.renew(replace(request, worker=local), seen))
        self._list.look_at_next()
        return answer

    def release(self, request: ReleaseRequest, seen: Seen) -> Answer:
        local, index = divmod(request.worker, len(self._servers))
        return self._ask(index, lambda server, seen: server.release(replace(request, worker=local), seen))

    def create(self, caller_ms: int) -> Answer:
        """Say of every server that the pool is new there. Answers "ok" if it was on one of them.

        Does nothing unless all of them answer: raises StoreUnavailable or LayoutMismatch.
        """
        errors, _ = self._list.look_at_all()
        for error in errors.values():
            raise error
        answers = [
            self._ask(index, lambda server, _: server.create(caller_ms))
            for index in self._list.in_fixed_order(range(len(self._servers)))
        ]
        return next((answer for answer in answers if answer.status == "ok"), answers[0])

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections and locks alone."""
        for server in self._servers:
            server.after_fork()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _order(self) -> list[int]:
        """Every server once: from a random one on, those that were away at the end."""
        count = len(self._servers)
        start = self._choose(count)
        return sorted(((start + i) % count for i in range(count)), key=self._away.__contains__)

    def _ask(self, index: int, ask: Callable[[Server, Seen], Answer]) -> Answer:
        server = self._servers[index]
        try:
            answer = ask(server, self._seen[index])
        except StoreUnavailable:
            self._away.add(index)
            raise
        self._away.discard(index)
        if answer.status == "signature":
            self._list.known.discard(index)
            raise self._list.mismatch(index, answer.rest[0])
        self._list.saw(index)
        self._seen[index] = answer.seen
        return answer

    def _give_back(self, index: int, answer: Answer, request: ClaimRequest) -> None:
        """Release what was just claimed and will not be used. A server that does not answer frees it after a ttl."""
        worker, lanes = int(answer.rest[0]), answer.rest[2].count(",") + 1
        tip, unmarked = answer.rest[3], (0,) * lanes
        unused = ReleaseRequest(worker, request.token, tip, "", request.caller_ms, unmarked, NOTHING_MADE)
        with contextlib.suppress(StoreUnavailable):
            self._ask(index, lambda server, seen: server.release(unused, seen))
