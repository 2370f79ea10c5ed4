"""The text that names a process in Redis, for people: JSON of its host, pid and label. And how it is read again."""

from __future__ import annotations

import functools
import json
import re
from typing import NamedTuple

# characters of a host name and of a label; with both, the text stays below the 1000 bytes that the scripts accept
MAX_NAME = 100
# what the scripts refuse, and surrogates, which cannot be encoded
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class ProcessOptions:
    """Options of this process. A forked child starts with those of its parent.

    Attributes:
        label: label of generators that have none: the text that people see beside the worker id.
    """

    def __init__(self) -> None:
        self.label = ""


PROCESS = ProcessOptions()


@functools.lru_cache(maxsize=100)
def owner_text(
    host: str,
    pid: int,
    label: str,
    generator: str = "",
    lane_until_ms: int = 0,
    taken_ms: int = 0,
    refused: str = "",
) -> str:
    """Return JSON that names a process in Redis, for people. Host and label are cut to MAX_NAME and made printable.

    Args:
        generator: random name of a generator of that process: containers can have equal hosts and pids.
        lane_until_ms: end of an outage lane in which it goes on, though the record may not show that; 0: there is none.
        taken_ms: when it took the lease over from a process that had ended; 0: it claimed the worker id itself.
        refused: the error of its last call, if it got no id since; "": there is none.
    """
    host, label = (_NOT_PRINTED.sub("\N{REPLACEMENT CHARACTER}", text[:MAX_NAME]) for text in (host, label))
    owner: dict[str, object] = {"host": host, "pid": pid, "label": label}
    more = {"generator": generator, "lane_until": lane_until_ms, "taken": taken_ms, "refused": refused}
    owner |= {name: value for name, value in more.items() if value}
    return json.dumps(owner, separators=(",", ":"), ensure_ascii=False)


class Owner(NamedTuple):
    """Description of a process by itself, as owner_text() wrote it; untrusted text."""

    host: str = ""
    pid: int = 0
    label: str = ""
    generator: str = ""
    lane_until_ms: int = 0
    taken_ms: int = 0
    refused: str = ""


def parse_owner(text: str) -> Owner:
    """Parse what owner_text() wrote. What has the wrong type is left out."""
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict):
        return Owner()
    names = ("host", "label", "generator", "refused")
    host, label, generator, refused = (_encodable(owner.get(name)) for name in names)
    numbers = (owner.get(name) for name in ("pid", "lane_until", "taken"))
    pid, lane_until_ms, taken_ms = (each if type(each) is int and each < 10**14 else 0 for each in numbers)
    return Owner(host, pid, label, generator, max(0, lane_until_ms), max(0, taken_ms), refused)


def _encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
