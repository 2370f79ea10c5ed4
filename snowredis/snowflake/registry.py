"""Registry of shard numbers: where a number is in an id, the replies, and the interface of its stores.

Pure data: no Redis, no clock, no lock. All times are milliseconds since 1970 on the clock of the registry's Redis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from snowredis.core.layout import Layout
from snowredis.errors import ConfigError
from snowredis.servers.scripts import with_format
from snowredis.snowflake.replies import Seen

# why a registry is closed: codes that the scripts write, each with a text for people
CLOSED_TEXTS = {
    "no-registry": "its Redis had no such registry, which pools created again",
    "other-server": "its Redis is another server process since then",
    "rolled-back": "it was older than what a pool had seen",
}


# a registry in which no number was seen has this one as its highest
NO_NUMBER = -1
NOTHING_SEEN = Seen()
# registry.lua has the same: a pool whose number was confirmed within this time is alive
ALIVE_MS = 180_000
_RECORD = re.compile(r"([0-9a-f]+)\|(\d+)\|(\d+)\|(\d+)\|([\w.-]+)\|(.*)", re.ASCII)


class Place(NamedTuple):
    """Position of the number in an id. Ids with different numbers in the same place are never equal."""

    bits: int
    shift: int

    @classmethod
    def of(cls, layout: Layout) -> Place:
        """Return the place of the datacenter bits. Raises ConfigError if the layout has none."""
        if not layout.datacenter_bits:
            raise ConfigError(
                f"the layout {layout} has no datacenter bits, which hold the shard number. Use a layout that has some: "
                "`snowredis layout` lists the presets, game-shards and twitter are two of them"
            )
        return cls(layout.datacenter_bits, layout.datacenter_shift)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse str() of a place. Raises ValueError."""
        bits, _, shift = text.partition("/")
        return cls(int(bits), int(shift))

    @property
    def capacity(self) -> int:
        """Return how many numbers there are."""
        return 1 << self.bits

    def __str__(self) -> str:
        return f"{self.bits}/{self.shift}"


class Status(StrEnum):
    """First field of a reply; the headers of the scripts say which one sends which."""

    MISSING = "missing"
    CREATED = "created"
    EXISTS = "exists"
    TAKEN = "taken"
    CLOSED = "closed"
    FULL = "full"
    NAMED = "named"
    USED = "used"
    CONFIRMED = "confirmed"
    CONFLICT = "conflict"
    OPENED = "opened"
    RETIRED = "retired"
    FREED = "freed"
    ALIVE = "alive"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """Reply of any script of a registry.

    Attributes:
        status: what was done, or why nothing was.
        seen: newest state of the registry, by which a script notices one that was rolled back.
        closed: code of the reason why no new numbers are given; empty if they are.
        highest: the highest number that was ever given, as far as the registry knows.
        fields: of this status, as the header of the script lists them.
    """

    status: Status
    redis_ms: int = 0
    seen: Seen = NOTHING_SEEN
    closed: str = ""
    highest: int = NO_NUMBER
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a number.

    Attributes:
        id: names the registration of the pool; another pool of the same name has another.
        taken_ms, confirmed_ms, retired_ms: when the number was given, was last confirmed by the pool, and when the
            pool was deleted; 0: never.
        pool: name of the pool.
        owner: where the pool was when it was last confirmed; untrusted text, printable.
    """

    id: str
    taken_ms: int
    confirmed_ms: int
    retired_ms: int
    pool: str
    owner: str

    @classmethod
    def parse(cls, text: str) -> Record | None:
        """Parse a record of registry.lua; None for any other text."""
        match = _RECORD.fullmatch(text)
        if match is None:
            return None
        registration, taken, confirmed, retired, pool, owner = match.groups()
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in owner[:400])
        return cls(registration, int(taken), int(confirmed), int(retired), pool, shown)

    def alive_at(self, now_ms: int) -> bool:
        """Return True if a process of the pool confirmed the number lately."""
        return self.confirmed_ms > now_ms - ALIVE_MS and not self.retired_ms


@dataclass(frozen=True, slots=True)
class RegistryState:
    """State of a registry, as read without a script.

    Attributes:
        incarnation: changes whenever the registry is closed.
        closed: reason of the last script; one that runs next may find another.
        records: by number, in order.
    """

    name: str
    now_ms: int
    place: Place
    durability: str
    incarnation: str
    closed: str
    closed_ms: int
    created_ms: int
    conflicts: int
    next_number: int
    records: Mapping[int, Record]

    def of_pool(self, pool: str) -> tuple[int, Record] | None:
        """Return the number and the record of the pool of that name."""
        return next(((number, each) for number, each in self.records.items() if each.pool == pool), None)


class Registry(Protocol):
    """Storage of a registry. Each call but read() is one atomic step and can be repeated if its reply was lost.

    Calls block for a round trip, about two seconds at most. They raise StoreUnavailable and its subclasses, and
    LayoutMismatch if the registry is for another place. *pool* is a pool's name, *owner* says where it is.
    """

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> Place | None:
        """Return the place that the caller's layout has; None: any, for people who look at a registry."""

    @property
    def where(self) -> str:
        """Return the address, without password, for messages."""

    def create(self, *, durability: str, first: int) -> RegistryReply:
        """Create the registry, which is new, as a person confirms; it gives *first* and numbers above it."""

    def take(self, pool: str, registration: str, *, wanted: int | None, owner: str) -> RegistryReply:
        """Give a number to a pool, by default the next one; the pool confirms it before it is used."""

    def confirm(
        self, pool: str, registration: str, number: int, *, highest: int, first: bool, owner: str
    ) -> RegistryReply:
        """Confirm that the pool has its number, and take it up again if it was forgotten."""

    def open(self, above: int = NO_NUMBER, *, read: str = "") -> RegistryReply:
        """Give new numbers again, above *above* and all that are known, as a person confirms.

        *read*: incarnation of the state that the person looked at; nothing changes if it is not the present one.
        """

    def retire(self, number: int, registration: str = "") -> RegistryReply:
        """Note that the pool of this registration was deleted; without a registration free the number."""

    def find(self, pool: str) -> tuple[int, Record, int] | None:
        """Return the number of a pool, its record and the time; None if it has none. Runs no script."""

    def read(self) -> RegistryState | None:
        """Return the state of the registry; None if there is none. Runs no script."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks. Takes no lock, uses no socket."""

    def close(self) -> None:
        """Close the connections."""


def parse_registration(text: str) -> tuple[str, str]:
    """Return the registry's name and the registration of a signature's ``registry=NAME/ID``; empty for no text."""
    name, _, registration = text.partition("/")
    return name, registration


def state_of(name: str, now_ms: int, fields: Mapping[str, str]) -> RegistryState | None:
    """Return the state that the fields of a registry's hash describe; None without a registry.

    Raises ValueError for what no script wrote.
    """
    if not fields.get("signature"):
        return None
    records: dict[int, Record] = {}
    for field, text in fields.items():
        kind, _, number = field.partition(":")
        record = Record.parse(text) if kind == "n" else None
        if record is not None:
            records[int(number)] = record
    return RegistryState(
        name=name,
        now_ms=now_ms,
        place=place_in(fields["signature"]),
        durability=fields.get("durability", ""),
        incarnation=fields.get("incarnation", ""),
        closed=fields.get("closed", ""),
        closed_ms=int(fields.get("closed_at", "0")),
        created_ms=int(fields.get("created", "0")),
        conflicts=int(fields.get("conflicts", "0")),
        next_number=int(fields.get("next", "0")),
        records=dict(sorted(records.items())),
    )


# of what a registry stores; see FORMATS in snowredis.errors
FORMAT = 2
# in the signature of people who look at a registry
ANY_PLACE = Place(0, 0)


def registry_signature(place: Place | None) -> str:
    """Return the signature of a registry whose numbers are in *place*; None: any."""
    return with_format(FORMAT, f"place={place or ANY_PLACE}")


def place_in(signature: str) -> Place:
    """Return the place in a signature. Raises ValueError."""
    return Place.parse(signature.partition(" place=")[2])


def registry_key(name: str) -> Sequence[str]:
    """Return the key of a registry, all of whose state is in one hash."""
    return (f"snowredis:registry:{{{name}}}",)
