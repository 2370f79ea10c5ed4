"""Descriptions of processes by themselves in Redis, for people: what owner_text() of process/names.py wrote, parsed."""

from __future__ import annotations

import json
from typing import NamedTuple


class Owner(NamedTuple):
    """Description of a process by itself, as owner_text() wrote it.

    Attributes:
        host, pid, label: how the process describes itself; untrusted text.
        generator: random name of its generator; "" if unknown.
        lane_until_ms: end of the outage lane of a lease that it lost, in which it can go on, too; 0: none.
        taken_ms: when it took the lease over from a process that had ended; 0: it claimed the worker id itself.
        refused: the error of its last call, if the process got no id since; "": it makes ids, or was not asked for any.
        version: of snowredis in the process; untrusted text; "" if unknown.
    """

    host: str = ""
    pid: int = 0
    label: str = ""
    generator: str = ""
    lane_until_ms: int = 0
    taken_ms: int = 0
    refused: str = ""
    version: str = ""

    @property
    def process(self) -> tuple[str, int]:
        """Host and pid, which all generators of a process share."""
        return self[:2]

    @property
    def name(self) -> tuple[str, int, str]:
        """Host, pid and label: what is equal in all that is stored of the process."""
        return self[:3]


def parse_owner(text: str) -> Owner:
    """Parse what owner_text() wrote. What has the wrong type is left out."""
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict):
        return Owner()
    names = ("host", "label", "generator", "refused", "version")
    host, label, generator, refused, version = [encodable(owner.get(name)) for name in names]
    numbers = [owner.get(name) for name in ("pid", "lane_until", "taken")]
    pid, lane_until_ms, taken_ms = [each if type(each) is int and each < 10**14 else 0 for each in numbers]
    return Owner(host, pid, label, generator, max(0, lane_until_ms), max(0, taken_ms), refused, version)


def encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    text = value if isinstance(value, str) else ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
