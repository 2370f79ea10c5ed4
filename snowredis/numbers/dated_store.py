"""Requests to the script of dated numbers, and its replies. Pure data.

The numbers of a tag in Redis: one script, its arguments and its replies.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Literal, NamedTuple, TypeAlias

from snowredis.errors import PoolBroken, ServerUnidentified, StoreUnavailable
from snowredis.numbers.dated_formats import Period
from snowredis.numbers.errors import TagDiffers
from snowredis.servers.runner import RedisScripts
from snowredis.servers.scripts import Script, own_texts, read_lua
from snowredis.settings import MinReplicas
from snowredis.snowflake.open import open_client

# a process uses no number that Redis handed out to it this long ago
BLOCK_LIFE_MS = 5_000
# how long after a loss a period is opened at the earliest: by then, no process has numbers of before
SETTLE_MS = BLOCK_LIFE_MS + 1_000

Action: TypeAlias = Literal["take", "open", "create"]


class Request(NamedTuple):
    """Request to the script.

    Attributes:
        amount: how many numbers; with "open", the next number.
        seen: the next number after the highest that this process saw in the period.
    """

    action: Action
    period: Period
    amount: int = 1
    seen: int = 1


class DatedReply(NamedTuple):
    """A reply of the script.

    Attributes:
        status: see the header of the script.
        now_ms: time of the call, on the Redis clock.
        values: the other fields.
    """

    status: str
    now_ms: int
    values: tuple[str, ...]


# statuses -> how many fields follow the time
FIELDS = {
    "granted": 1,
    "opened": 1,
    "created": 0,
    "exists": 0,
    "elsewhen": 0,
    "closed": 4,
    "settling": 1,
    "exhausted": 0,
    "past": 0,
}


# characters of a format that are stored
MAX_FORMAT = 100


def tag_key(tag: str) -> str:
    """Return the key of a tag."""
    return f"snowredis:{{{tag}}}:dated"


class DatedStore(RedisScripts):
    """The numbers of one tag on one server.

    Args:
        server: a URL or a redis-py client.
        tag: the name of the numbers.
        signature: period and zone, the same in all processes.
        assured: Redis never loses a write that it acknowledged.
        skew_ms: how far two Redis servers' clocks may differ.
        slack_ms: how long a deposed master may go on answering; None: as long as the kind of server needs.
        maximum: the highest number of a period.
        format: of the texts; for people.
    """

    def __init__(
        self,
        server: Any,
        tag: str,
        signature: str,
        *,
        assured: bool,
        skew_ms: int,
        slack_ms: int | None,
        maximum: int,
        format: str,  # noqa: A002 - it is one
        min_replicas: MinReplicas = 0,
    ) -> None:
        client = open_client(server)
        super().__init__(client, min_replicas)
        self.tag, self._signature, self._maximum = tag, signature, maximum
        slack = client.failover_slack_ms if slack_ms is None else slack_ms
        self._constants = (signature, int(assured))
        self._limits = (skew_ms, slack)
        self._format = "".join(filter(str.isprintable, format))[:MAX_FORMAT]
        self._keys = (tag_key(tag),)
        self._script = load()

    def ask(self, request: Request) -> DatedReply:
        """Run the script once.

        Blocks for a round trip. Raises TagDiffers, StoreUnavailable and its subclasses. Is never repeated here: numbers
        whose reply was lost are gaps.
        """
        nonce = os.urandom(16).hex()
        period = request.period
        times = (period.from_ms, period.until_ms, period.first_ms)
        rest = (request.action, period.label, *times, request.amount, self._maximum, request.seen, SETTLE_MS)
        arguments = (*self._constants, nonce, *self._limits, *rest, self._format)
        values = self.run(self._script, self._keys, arguments)
        texts = own_texts(values, nonce, self.where, self.reconnect)
        match texts:
            case ["signature", stored]:
                raise TagDiffers(self.tag, stored, self._signature)
            case ["unidentified", code]:
                raise ServerUnidentified(self.where, code)
            case ["broken", field, value]:
                raise PoolBroken(self.where, self.tag, field, value)
            case [status, now_ms, *others] if FIELDS.get(status) == len(others) and now_ms.isdecimal():
                return DatedReply(status, int(now_ms), tuple(others))
        raise StoreUnavailable(self.where, f"it sent a reply that no script sends: {texts!r}")


def read_script() -> str:
    """Return the text of lua/dated.lua."""
    return read_lua("dated", __file__)


@functools.cache
def load() -> Script:
    """Return the script; reads its files at the first call."""
    return Script("dated", (read_lua("identity"), read_script()))
