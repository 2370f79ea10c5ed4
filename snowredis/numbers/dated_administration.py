"""Look at the dated numbers of a tag. The command line is built on this."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from snowredis.errors import ConfigError, shown
from snowredis.numbers.dated_formats import Calendar
from snowredis.numbers.dated_store import tag_key
from snowredis.servers.clients import is_cluster
from snowredis.servers.runner import RedisScripts, translated
from snowredis.servers.scripts import text_of
from snowredis.servers.time_limit import CALL_LIMIT_S, time_limit
from snowredis.snowflake.open import open_client

_SIGNATURE = re.compile(r"period=(hour|day|month|year) zone=([\w/+-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DatedInfo:
    """State of the dated numbers of a tag, as it is stored.

    Attributes:
        where: the server's address.
        period: "hour", "day", "month" or "year".
        zone: name of the time zone of the period.
        format: of the texts, as the process has it that made the first number of the newest period; "" without one.
        label: the current period, by the clock of Redis, such as "2026-11-22".
        last_number: the last number of it that was handed out; 0: none.
        closed_reason: why it hands out no numbers: "no-tag", "other-server" or "rolled-back"; None if it does.
        opens_ms: when the first period begins that is open by itself, ms since 1970; None if the current one is open.
    """

    where: str
    period: str
    zone: str
    format: str
    label: str
    last_number: int
    closed_reason: str | None = None
    opens_ms: int | None = None


class _Reader(RedisScripts):
    def read(self, key: str) -> tuple[dict[str, str], int]:
        """Return the fields of the hash *key*, and the time of its server, ms since 1970."""
        client = self._client
        with translated(self.where), time_limit(CALL_LIMIT_S):
            if is_cluster(client):
                client = client.get_redis_connection(client.get_node_from_key(key))
            fields: Any = client.hgetall(key)
            seconds, micros = client.time()
        texts = {text_of(name): text_of(value) for name, value in fields.items()}
        return texts, int(seconds) * 1000 + int(micros) // 1000


def show_dated(url: Any, tag: str) -> DatedInfo | None:
    """Return the state of the dated numbers of *tag*; None if there are none. Runs no script and writes nothing.

    A restart of Redis that no process has noticed yet does not show.

    Raises StoreUnavailable and its subclasses, ConfigError.
    """
    reader = _Reader(open_client(url), 0)
    try:
        fields, now_ms = reader.read(tag_key(tag))
    finally:
        reader.close()
    if "signature" not in fields:
        return None
    found = _SIGNATURE.fullmatch(fields["signature"])
    if found is None:
        raise ConfigError(
            f"the dated numbers of {tag!r} have a signature that snowredis never writes: {shown(fields['signature'])}"
        )
    period: Any = found[1]
    calendar = Calendar(period, found[2])
    current = calendar.at(now_ms)

    def number(name: str, default: int) -> int:
        text = fields.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else default

    closed_until = number("closed_until", 0)
    reason, opens_ms = None, None
    opened = fields.get(f"o:{current.label}") == fields.get("closed_until")
    if current.first_ms < closed_until and not opened:
        reason, later = fields.get("reason") or "unknown", current
        while later.first_ms < closed_until:
            later = calendar.at(later.until_ms)
        opens_ms = later.first_ms
    return DatedInfo(
        where=reader.where,
        period=period,
        zone=found[2],
        format=fields.get("format", ""),
        label=current.label,
        last_number=number(f"n:{current.label}", 1) - 1,
        closed_reason=reason,
        opens_ms=opens_ms,
    )
