"""Store of the dated numbers of a tag in Redis: one script, its arguments and its replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from snowredis.numbers.formats import Period
from snowredis.numbers.stores import NumberStore, load
from snowredis.servers.clients import is_cluster
from snowredis.servers.runner import RedisScripts, translated
from snowredis.servers.scripts import text_of, with_format
from snowredis.servers.time_limit import CALL_LIMIT_S, time_limit
from snowredis.settings import MinReplicas
from snowredis.snowflake.open import open_client

# of what is stored, see FORMATS in snowredis.errors
FORMAT = 2
# a process uses no number that Redis handed out to it this long ago
BLOCK_LIFE_MS = 5_000
# how long after a loss a period is opened at the earliest: by then, no process has numbers of before
SETTLE_MS = BLOCK_LIFE_MS + 1_000
# characters of a format that are stored
MAX_FORMAT = 100

Action: TypeAlias = Literal["take", "open", "create"]


class Request(NamedTuple):
    """Request to the script.

    Attributes:
        least: how many numbers the caller needs; with "open", the next number.
        most: how many numbers it takes, if they are left.
        seen: the next number after the highest that this process saw in the period.
    """

    action: Action
    period: Period
    least: int = 1
    most: int = 1
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
    "granted": 2,
    "opened": 1,
    "created": 0,
    "exists": 0,
    "elsewhen": 0,
    "closed": 4,
    "settling": 1,
    "exhausted": 1,
    "past": 0,
}


def tag_key(tag: str) -> str:
    """Return the key of a tag."""
    return f"snowredis:{{{tag}}}:dated"


def signature_of(period: str, zone: str, durability: str) -> str:
    """Return the constants of a tag as text. They are stored in the tag, and compared by the script."""
    return with_format(FORMAT, f"period={period} zone={zone} durability={durability}")


class DatedStore(RedisScripts, NumberStore):
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
        assured: bool = False,
        skew_ms: int = 0,
        slack_ms: int | None = None,
        maximum: int = 1,
        format: str = "",  # noqa: A002 - it is one
        min_replicas: MinReplicas = 0,
    ) -> None:
        client = open_client(server)
        NumberStore.__init__(self, signature, (tag_key(tag),), {"dated": load("dated")})
        RedisScripts.__init__(self, client, min_replicas)
        self.tag, self._maximum = tag, maximum
        slack = client.failover_slack_ms if slack_ms is None else slack_ms
        self._constants = (int(assured), skew_ms, slack)
        self._format = "".join(filter(str.isprintable, format))[:MAX_FORMAT]

    def send(self, request: Request) -> DatedReply:
        """Run the script once.

        Blocks for a round trip. Raises NumbersDiffer, StoreUnavailable and its subclasses. Is never repeated here:
        numbers whose reply was lost are gaps.
        """
        period = request.period
        when = (period.label, period.from_ms, period.until_ms, period.first_ms)
        rest = (request.least, request.most, self._maximum, request.seen, SETTLE_MS, self._format)
        texts = self.ask("dated", *self._constants, request.action, *when, *rest)
        match texts:
            case [status, now_ms, *others] if FIELDS.get(status) == len(others) and now_ms.isdecimal():
                return DatedReply(status, int(now_ms), tuple(others))
        raise self.unknown(texts)

    def read(self) -> tuple[Mapping[str, str], int]:
        """Return the stored fields, none if there is no such tag, and the time of the server, ms since 1970.

        Runs no script and writes nothing.
        """
        client, key = self._client, self._keys[0]
        with translated(self.where), time_limit(CALL_LIMIT_S):
            if is_cluster(client):
                client = client.get_redis_connection(client.get_node_from_key(key))
            fields: Any = client.hgetall(key)
            seconds, micros = client.time()
        texts = {text_of(name): text_of(value) for name, value in fields.items()}
        return texts, int(seconds) * 1000 + int(micros) // 1000

    def delete(self) -> bool:
        """Delete the dated numbers of the tag. Returns False if there were none."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return bool(self._client.delete(self._keys[0]))
