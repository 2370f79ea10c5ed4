"""Processes that have or had worker ids: how they describe themselves in Redis, and how texts count and name them.

Pure. owner_text() of process/names.py wrote the descriptions. Hosts, labels and versions are untrusted text. One
process can have several generators, each with a lease of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from snowredis.core.as_json import Shown

# workers named in a text
_MAX_NAMED = 5


# fields of owner_text()
_TEXTS, _NUMBERS = ("host", "label", "generator", "refused", "version"), ("pid", "lane_until", "taken")


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

    @property
    def text(self) -> str:
        """Host, pid and label for people; untrusted text."""
        return f"{self.host}:{self.pid}{f' ({self.label})' if self.label else ''}"


def parse_owner(text: str) -> Owner:
    """Parse what owner_text() wrote. What has the wrong type is left out."""
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict):
        return Owner()
    # thousands of workers are shown, and nearly all texts are ASCII
    texts = [each if type(each) is str and each.isascii() else encodable(each) for each in map(owner.get, _TEXTS)]
    numbers = [each if type(each) is int and 0 <= each < 10**14 else 0 for each in map(owner.get, _NUMBERS)]
    (host, label, generator, refused, version), (pid, lane_until_ms, taken_ms) = texts, numbers
    return Owner(host, pid, label, generator, lane_until_ms, taken_ms, refused, version)


def encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


# a process, as JSON shows it
OwnerNamed: TypeAlias = Annotated[Owner, Shown("parts", "host pid label")]


class Owned:
    """Base of records of what a process has, or had.

    Attributes:
        worker: the worker id.
        owner: the process.
    """

    __slots__ = ()
    worker: int
    owner: OwnerNamed

    @property
    def host(self) -> str:
        """Host of the process; untrusted text."""
        return self.owner.host

    @property
    def pid(self) -> int:
        """Process id."""
        return self.owner.pid

    @property
    def label(self) -> str:
        """Label of the process; untrusted text."""
        return self.owner.label


def count(number: int, one: str, several: str = "") -> str:
    """Return *number* with the word for it; *several*: the plural if it is not *one* with an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def processes_of(leases: Iterable[Owned]) -> set[tuple[str, int]]:
    """Return host and pid of each process that has, or had, one of *leases*."""
    return {each.owner.process for each in leases}


def counted(leases: Sequence[Owned]) -> str:
    """Return how many processes have *leases*, and how many leases these are if some have several."""
    number = len(processes_of(leases))
    if number == len(leases):
        return count(number, "worker")
    return f"{count(number, 'process', 'processes')} with {len(leases):,} worker ids"


def named(leases: Sequence[Owned]) -> str:
    """Return how many these are, and the first of them."""
    names = ", ".join(f"{each.worker} on {each.host}:{each.pid}" for each in leases[:_MAX_NAMED])
    return f"{counted(leases)} ({names}{' …' if len(leases) > _MAX_NAMED else ''})"


def greatest_holder(leases: Sequence[Owned]) -> tuple[str, int]:
    """Return the process with the most worker ids, and how many it has; ("", 0) if there is none."""
    held = Counter(each.owner.process for each in leases)
    process, most = max(held.items(), key=lambda item: item[1], default=(None, 0))
    return next((each.owner.text for each in leases if each.owner.process == process), ""), most
