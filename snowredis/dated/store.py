"""The numbers of a tag in Redis: one script, its arguments and its replies."""

from __future__ import annotations

import functools
import os
from typing import Any

from snowredis.dated.errors import TagDiffers
from snowredis.dated.model import FIELDS, SETTLE_MS, DatedReply, Request
from snowredis.errors import PoolBroken, ServerUnidentified, StoreUnavailable
from snowredis.lease.open import open_client
from snowredis.lease.redis_store import RedisScripts
from snowredis.lease.scripts import Script, own_texts, read_lua
from snowredis.settings import MinReplicas

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
        texts = own_texts(values, nonce, self.where, self._reconnect)
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
