"""The Lua scripts as a Registry: builds their arguments, reads their replies.

Independent of redis-py: a subclass runs the scripts, in Redis or in a simulation.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from snowredis.errors import PoolBroken, ServerUnidentified, ShardNumberRefused, StoreUnavailable
from snowredis.lease.replies import Seen
from snowredis.lease.scripts import REGISTRY_SCRIPTS, Script, load, own_texts
from snowredis.registry.model import (
    NO_NUMBER,
    Place,
    Record,
    RegistryReply,
    RegistryState,
    Status,
    registry_key,
    state_of,
)


class ScriptRegistry(ABC):
    """Base class of registries whose state is read and written by the scripts.

    Args:
        name: of the registry.
        place: where the caller's layout has the number; None: any.
        random_bytes: source of the nonces.
    """

    where: str

    def __init__(
        self, name: str, place: Place | None, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.name, self.place = name, place
        self._random_bytes = random_bytes
        self._seen = Seen()
        # read now: a process that is forked while another thread reads a file may wait for ever
        self._scripts = {script: load(script) for script in REGISTRY_SCRIPTS}
        self._keys = registry_key(name)

    @abstractmethod
    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script* once, atomically. Raises StoreUnavailable and its subclasses."""

    @abstractmethod
    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        """Return the time in ms and these fields of the hash, all if none is named, without a script."""

    def _reconnect(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """Drop all connections."""

    def _call(self, name: str, *args: str | int) -> RegistryReply:
        nonce = self._random_bytes(16).hex()
        common = (self.place or "", self._seen.incarnation, self._seen.version, nonce)
        values = self.run(self._scripts[name], self._keys, (*map(str, common), *args))
        texts = own_texts(values, nonce, self.where, self._reconnect)
        match texts:
            case ["missing"]:
                return RegistryReply(Status.MISSING)
            case ["place", stored]:
                raise self._other_place(stored)
            case ["unidentified", code]:
                raise ServerUnidentified(self.where, code)
            case ["broken", field, value]:
                raise PoolBroken(self.where, f"registry {self.name}", field, value)
        try:
            status, redis_ms, incarnation, version, closed, highest, *fields = texts
            seen = Seen(incarnation, int(version))
            reply = RegistryReply(Status(status), int(redis_ms), seen, closed, int(highest), tuple(fields))
        except ValueError:
            raise StoreUnavailable(self.where, f"it sent a reply that no script sends: {texts!r}") from None
        self._seen = seen
        return reply

    def _other_place(self, stored: str) -> ShardNumberRefused:
        bits, _, shift = stored.partition("/")
        return ShardNumberRefused(
            "",
            self.name,
            f"its numbers are {bits} bits wide, {shift} bits from the right of an id; in this layout they are "
            f"{self.place and self.place.bits} bits wide, {self.place and self.place.shift} bits from the right. Only "
            "numbers in the same place keep ids apart. Use a layout that has them there, or another registry",
        )

    def create(self, *, durability: str, first: int) -> RegistryReply:
        return self._call("registry_create", durability, first)

    def take(self, pool: str, registration: str, *, wanted: int | None, owner: str) -> RegistryReply:
        number = NO_NUMBER if wanted is None else wanted
        return self._call("registry_take", pool, registration, number, owner)

    def confirm(
        self, pool: str, registration: str, number: int, *, highest: int, first: bool, owner: str
    ) -> RegistryReply:
        return self._call("registry_confirm", pool, registration, number, highest, int(first), owner)

    def open(self, above: int = NO_NUMBER, *, read: str = "") -> RegistryReply:
        return self._call("registry_open", above, read)

    def retire(self, number: int, registration: str = "") -> RegistryReply:
        return self._call("registry_retire", number, registration)

    def find(self, pool: str) -> tuple[int, Record, int] | None:
        number = self._fields(f"p:{pool}")[1].get(f"p:{pool}", "")
        if not number.isdecimal():
            return None
        now_ms, fields = self._fields(f"n:{number}")
        record = Record.parse(fields.get(f"n:{number}", ""))
        return None if record is None or record.pool != pool else (int(number), record, now_ms)

    def read(self) -> RegistryState | None:
        now_ms, fields = self._fields()
        try:
            return state_of(self.name, now_ms, fields)
        except ValueError as error:
            raise StoreUnavailable(
                self.where, f"registry {self.name!r} has a field that no script wrote ({error})"
            ) from None

    def after_fork(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...
