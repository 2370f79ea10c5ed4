"""The record of a worker id, as pool.lua writes it. Pure.

Hosts and labels are untrusted text: any process can write them.
"""

from __future__ import annotations

import json
import re

from snowredis.monitor.snapshot import WorkerInfo, state_of
from snowredis.snowflake.protocol import WorkerStats

_RECORD = re.compile(
    r"(?P<token>[\da-fA-F]*)\|(?P<incarnation>[\da-fA-F-]*)\|(?P<renewal_id>[\da-fA-F]*)\|(?P<until>\d{1,14})\|"
    r"(?P<lease_end>\d{1,14})\|(?P<lanes>[\d,]*)\|(?P<claimed>\d{1,14})\|(?P<renewed>\d{1,14})\|"
    r"(?P<stats>[\d,-]*)\|(?P<owner>.*)",
    re.DOTALL | re.ASCII,
)


def parse_record(
    worker: int, text: str, now_ms: int, ttl_ms: int = 0, *, settling: str = ""
) -> WorkerInfo | None:
    """Parse a record that pack_record() of pool.lua wrote; None if it is not valid.

    Args:
        settling: the pool's incarnation, if its floor has not passed: a lease of an earlier one may be adopted.
    """
    match = _RECORD.fullmatch(text)
    if match is None:
        return None
    stats, claimed = WorkerStats.from_text(match["stats"]), bool(match["token"])
    renewed_ms, lease_end_ms = int(match["renewed"]), int(match["lease_end"])
    lease_left_ms, age_ms = max(0, lease_end_ms - now_ms), max(0, now_ms - renewed_ms)
    host, pid, label = parse_owner(match["owner"])
    confirmed = not settling or match["incarnation"] == settling
    first_lane = match["lanes"].partition(",")[0]
    return WorkerInfo(
        worker=worker,
        alive=claimed and lease_left_ms > 0,
        host=host,
        pid=pid,
        label=label,
        claimed_ms=int(match["claimed"]),
        renewed_ms=renewed_ms,
        lease_end_ms=lease_end_ms,
        lease_left_ms=lease_left_ms,
        reserved_until_ms=int(match["until"]),
        ids_made=stats.ids_made,
        ids_per_second=stats.ids_per_s,
        clock_offset_ms=stats.clock_offset_ms,
        namespace=stats.namespace,
        clock_backs=stats.clock_backs,
        token_hash=match["token"],
        heartbeat_age_ms=age_ms,
        state=state_of(age_ms, lease_left_ms, ttl_ms, claimed=claimed, confirmed=confirmed),
        reserved_from_ms=int(first_lane or 0) if len(first_lane) < 15 else 0,
    )


def parse_owner(text: str) -> tuple[str, int, str]:
    """Return host, pid and label of an owner; untrusted text. What has the wrong type is left out."""
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict):
        return "", 0, ""
    pid = owner.get("pid")
    return _encodable(owner.get("host")), pid if type(pid) is int else 0, _encodable(owner.get("label"))


def _encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
