"""Registry of shard numbers: where a number is in an id, the records, and the calls of a registry in Redis.

A number is claimed once, confirmed when its pool is created, and freed by a person. The Lua scripts have the rules.
Registry builds their arguments and reads their replies; a subclass runs them, in Redis (RedisRegistry) or in a
simulation. All times are milliseconds since 1970 on the clock of the registry's Redis.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from snowredis.core.as_json import Hidden, HiddenMs, Shown, TimeMs
from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, PoolBroken, ServerUnidentified, ShardNumberRefused, StoreUnavailable
from snowredis.servers.connections import CALL_LIMIT_S, time_limit
from snowredis.servers.runner import RedisScripts, server_now_ms, translated
from snowredis.servers.scripts import Reason, Scripted, load_script, text_of, with_format
from snowredis.settings import check
from snowredis.signatures import wrong_format

# a registry in which no number was seen has this one as its highest
NO_NUMBER = -1
# version of what a registry stores; see FORMATS in snowredis.signatures
FORMAT = 4
REGISTRY_SCRIPTS = ("registry_number", "registry_edit")
_RECORD = re.compile(r"([0-9a-f]+)\|(\d+)\|(\d+)\|([\w.-]+)\|(.*)", re.ASCII)


class NumberPlace(NamedTuple):
    """Position of the number in an id. Ids with different numbers in the same place are never equal."""

    bits: int
    shift: int

    @classmethod
    def of(cls, layout: Layout) -> NumberPlace:
        """Return the place of the datacenter bits. Raises ConfigError if the layout has none."""
        if not layout.datacenter_bits:
            raise ConfigError(
                f"the layout {layout} has no datacenter bits, which hold the shard number. Use a layout that has some: "
                "`snowredis layout` lists the presets, game-shards and twitter are two of them"
            )
        return cls(layout.datacenter_bits, layout.datacenter_shift)

    @classmethod
    def in_signature(cls, signature: str) -> NumberPlace:
        """Return the place in the signature of a registry. Raises ValueError."""
        bits, _, shift = signature.partition(" place=")[2].partition("/")
        return cls(int(bits), int(shift))

    @property
    def capacity(self) -> int:
        """Return how many numbers there are."""
        return 1 << self.bits

    def __str__(self) -> str:
        return f"{self.bits}/{self.shift}"


# in the signature of people who look at a registry
ANY_PLACE = NumberPlace(0, 0)


class RegistryClosed(Reason):
    """Why a registry gives no new numbers."""

    NO_REGISTRY = "no-registry", "its Redis had no such registry, which pools created again"
    OTHER_SERVER = "other-server", "its Redis is another server process since then"
    ROLLED_BACK = "rolled-back", "it was older than what a pool had seen"
    # the only one that is false
    OPEN = "", "new numbers are given"


class RegistryStatus(StrEnum):
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
    FREED = "freed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """Reply of any script of a registry.

    Attributes:
        status: what was done, or why nothing was.
        closed: why no new numbers are given, if they are not.
        highest: the highest number that was ever given, as far as the registry knows.
        fields: of this status, as the header of the script lists them.
    """

    status: RegistryStatus
    redis_ms: int = 0
    closed: RegistryClosed = RegistryClosed.OPEN
    highest: int = NO_NUMBER
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberRecord:
    """Record of a number.

    Attributes:
        id: names the registration of the pool; another pool of the same name has another.
        taken_ms, confirmed_ms: when the number was given, and was last confirmed by the pool; 0: never.
        pool: name of the pool.
        where: where the pool was when it was last confirmed; untrusted text, printable.
    """

    id: Hidden
    taken_ms: TimeMs
    confirmed_ms: TimeMs
    pool: str
    where: str

    @classmethod
    def parse(cls, text: str) -> NumberRecord | None:
        """Parse a record of registry.lua; None for any other text."""
        match = _RECORD.fullmatch(text)
        if match is None:
            return None
        registration, taken, confirmed, pool, where = match.groups()
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in where[:400])
        return cls(registration, int(taken), int(confirmed), pool, shown)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """State of a registry, as read without a script.

    Attributes:
        incarnation: changes whenever the registry is closed.
        closed: reason of the last script; one that runs next may find another.
        records: by number, in order.
    """

    name: str
    now_ms: HiddenMs
    place: NumberPlace
    incarnation: Hidden
    closed: Annotated[RegistryClosed, Shown(null="")]
    closed_ms: TimeMs
    created_ms: TimeMs
    conflicts: int
    next_number: Annotated[int, Shown(name="next")]
    records: Annotated[Mapping[int, NumberRecord], Shown(name="numbers")]

    @classmethod
    def parse(cls, name: str, now_ms: int, fields: Mapping[str, str]) -> RegistryState | None:
        """Parse the fields of a registry's hash; None if there are none. Raises ValueError for what no script wrote."""
        if not fields.get("signature"):
            return None
        records = {
            int(field.removeprefix("n:")): record
            for field, text in fields.items()
            if field.startswith("n:") and (record := NumberRecord.parse(text)) is not None
        }
        return cls(
            name=name,
            now_ms=now_ms,
            place=NumberPlace.in_signature(fields["signature"]),
            incarnation=fields.get("incarnation", ""),
            closed=RegistryClosed(fields.get("closed", "")),
            closed_ms=int(fields.get("closed_at", "0")),
            created_ms=int(fields.get("created", "0")),
            conflicts=int(fields.get("conflicts", "0")),
            next_number=int(fields.get("next", "0")),
            records=dict(sorted(records.items())),
        )


def registry_key(name: str) -> str:
    """Return the key of a registry, all of whose state is in one hash."""
    return f"snowredis:registry:{{{name}}}"


class RegistryUnidentified(ServerUnidentified):
    """This Redis does not show its identity, so that a registry there could give a number twice."""

    _refused = "numbers would be given twice, so none was given"
    _otherwise = "put the registry in another Redis: registry_url"


class Registry(Scripted):
    """A registry of shard numbers. Each call but find() and read() is one atomic step, and can be repeated.

    Calls block for a round trip, about two seconds at most. They raise StoreUnavailable and its subclasses, and
    ShardNumberRefused if the registry is for another place. *pool* is a pool's name, *where* says where the pool is.

    Args:
        name: of the registry.
        place: where the caller's layout has the number; None: any, for people who look at a registry.
        random_bytes: source of the nonces.
    """

    def __init__(
        self, name: str, place: NumberPlace | None, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.name = name
        scripts = {script: load_script(script, __file__, ("registry",)) for script in REGISTRY_SCRIPTS}
        super().__init__("", (registry_key(name),), scripts, random_bytes=random_bytes)
        self.use(place)

    def use(self, place: NumberPlace | None) -> None:
        """Go on for layouts that have the number in this *place*; None: in any."""
        self.place = place or ANY_PLACE
        self.signature = with_format(FORMAT, f"place={self.place}")

    @property
    def missing(self) -> str:
        """Return what to do if there is no such registry."""
        return (
            f"there is no registry {self.name!r} at {self.where}. If it never existed, create it once: snowredis "
            f"registry create {self.name} --layout LAYOUT. If Redis lost it, name the servers of its pools: snowredis "
            f"registry open {self.name} --from URL..."
        )

    def create(self, *, first: int) -> RegistryReply:
        """Create the registry, which is new, as a person confirms; it gives *first* and numbers above it."""
        return self._call("registry_edit", "create", first, "")

    def open(self, above: int = NO_NUMBER, *, read: str = "") -> RegistryReply:
        """Give new numbers again, above *above* and all that are known, as a person confirms.

        *read*: incarnation of the state that the person looked at; nothing changes if it is not the present one.
        """
        return self._call("registry_edit", "open", above, read)

    def free(self, number: int, *, confirmed_ms: int) -> RegistryReply:
        """Free a number, as a person says: another pool may be created with it.

        *confirmed_ms*: when it was confirmed as far as the person saw; nothing changes if it was confirmed since.
        """
        return self._call("registry_edit", "free", number, str(confirmed_ms))

    def take(self, pool: str, registration: str, *, wanted: int | None, where: str) -> RegistryReply:
        """Give a number to a pool, by default the next one; the pool confirms it before it is used."""
        number = NO_NUMBER if wanted is None else wanted
        return self._call("registry_number", "take", pool, registration, number, NO_NUMBER, where)

    def confirm(
        self, pool: str, registration: str, number: int, *, highest: int, first: bool, where: str
    ) -> RegistryReply:
        """Confirm that the pool has its number, and take it up again if it was forgotten.

        Args:
            highest: the highest number that the pool ever saw.
            first: True if the number was not confirmed before, so that no id was made with it.
        """
        step = "first" if first else "again"
        return self._call("registry_number", step, pool, registration, number, highest, where)

    def find(self, pool: str) -> tuple[int, NumberRecord] | None:
        """Return the number of a pool and its record; None if it has none. Runs no script."""
        number = self._fields(f"p:{pool}")[1].get(f"p:{pool}", "")
        if not number.isdecimal():
            return None
        record = NumberRecord.parse(self._fields(f"n:{number}")[1].get(f"n:{number}", ""))
        return None if record is None or record.pool != pool else (int(number), record)

    def read(self) -> RegistryState | None:
        """Return the state of the registry; None if there is none. Runs no script."""
        now_ms, fields = self._fields()
        try:
            return RegistryState.parse(self.name, now_ms, fields)
        except ValueError as error:
            raise StoreUnavailable(
                self.where, f"registry {self.name!r} has a field that no script wrote ({error})"
            ) from None

    @abstractmethod
    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        """Return the time in ms and these fields of the hash, all if none is named, without a script."""

    @abstractmethod
    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks. Takes no lock, uses no socket."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def _call(self, name: str, *args: str | int) -> RegistryReply:
        request = self.request(name, *args)
        texts = self.texts_of(request, self.run(*request))
        if texts == ["missing"]:
            return RegistryReply(RegistryStatus.MISSING)
        try:
            status, redis_ms, closed, highest, *fields = texts
            why = RegistryClosed(closed)
            return RegistryReply(RegistryStatus(status), int(redis_ms), why, int(highest), tuple(fields))
        except ValueError:
            raise self.unknown(texts) from None

    def mismatch(self, stored: str) -> ShardNumberRefused:
        other = wrong_format(self.signature, stored)
        if other:
            return ShardNumberRefused("", self.name, other)
        place, here = NumberPlace.in_signature(stored), self.place
        return ShardNumberRefused(
            "",
            self.name,
            f"its numbers are {place.bits} bits wide, {place.shift} bits from the right of an id; in this layout they "
            f"are {here.bits} bits wide, {here.shift} bits from the right. Only numbers in the same place keep ids "
            "apart. Use a layout that has them there, or another registry",
        )

    def broken(self, field: str, value: str) -> PoolBroken:
        return PoolBroken(self.where, f"registry {self.name}", field, value)

    def unidentified(self, code: str) -> ServerUnidentified:
        return RegistryUnidentified(self.where, code)


class RedisRegistry(RedisScripts, Registry):
    """A registry in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what open_client() returned for one.
        name: of the registry.
        place: where the caller's layout has the number; None: any.
    """

    def __init__(self, server: Any, name: str, place: NumberPlace | None = None) -> None:
        Registry.__init__(self, check("registry", name), place)
        RedisScripts.__init__(self, server, 0)

    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            now_ms = server_now_ms(self._client, self._keys[0])
            if names:
                values = self._client.hmget(self._keys[0], names)
                pairs = zip(names, values, strict=True)
            else:
                pairs = self._client.hgetall(self._keys[0]).items()
            fields = {text_of(name): text_of(value) for name, value in pairs if value is not None}
        return now_ms, fields
