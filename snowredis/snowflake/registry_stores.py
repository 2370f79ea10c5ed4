"""Stores of registries of shard numbers: in the memory of this process, for tests, and in Redis.

MemoryRegistry follows the scripts rule by rule; the same tests run on both. It loses nothing, so it is closed only
after wipe(). ScriptRegistry builds the arguments of the scripts and reads their replies; a subclass runs them, in Redis
(RedisRegistry) or in a simulation.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from snowredis.errors import PoolBroken, ShardNumberRefused, StoreUnavailable, wrong_format
from snowredis.servers.runner import RedisScripts, translated
from snowredis.servers.scripts import Scripted, load_script, text_of
from snowredis.servers.time_limit import CALL_LIMIT_S, time_limit
from snowredis.snowflake.registry import (
    ANY_PLACE,
    NO_NUMBER,
    Place,
    Record,
    RegistryReply,
    RegistryState,
    Status,
    place_in,
    registry_key,
    registry_signature,
    state_of,
)
from snowredis.snowflake.replies import Seen

REGISTRY_SCRIPTS = (
    "registry_take",
    "registry_confirm",
    "registry_create",
    "registry_open",
    "registry_retire",
)


class _State:
    """State that all objects for one registry share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.lives = 0
        self.clear()

    def clear(self) -> None:
        self.place: Place | None = None
        self.durability, self.closed = "detect", ""
        self.created_ms = self.closed_ms = self.conflicts = self.version = self.next = 0
        self.incarnation = ""
        self.records: dict[int, Record] = {}


class MemoryRegistry:
    """A Registry in memory. Thread-safe.

    Args:
        name: of the registry.
        place: where the caller's layout has the number; None: any.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
        of: another object of the same registry, whose state this one shares.
    """

    where = "memory"

    def __init__(
        self,
        name: str,
        place: Place | None,
        server_time_ms: Callable[[], int],
        of: MemoryRegistry | None = None,
    ) -> None:
        self.name, self.place = name, place
        self._server_time_ms = server_time_ms
        self._state: _State = _State() if of is None else of._state

    def wipe(self) -> None:
        """Delete everything, as FLUSHALL does."""
        with self._state.lock:
            self._state.clear()

    def _check_place(self) -> None:
        stored = self._state.place
        if stored is not None and self.place not in (None, stored):
            raise ShardNumberRefused(
                "", self.name, f"its numbers are in the place {stored}, and those here in {self.place}"
            )

    def _begin(self) -> None:
        """Create the registry, closed, if it does not exist."""
        state = self._state
        if state.place is None:
            state.place, state.closed, state.closed_ms = self.place, "no-registry", self._server_time_ms()
            state.lives += 1
            state.incarnation = f"{state.closed_ms}-{state.lives:x}"

    def _reply(self, status: Status, *fields: object) -> RegistryReply:
        state = self._state
        state.version += 1
        return RegistryReply(
            status,
            self._server_time_ms(),
            Seen(state.incarnation, state.version),
            state.closed,
            state.next - 1,
            tuple(map(str, fields)),
        )

    def _age_ms(self, record: Record) -> int:
        return max(0, self._server_time_ms() - record.confirmed_ms)

    def create(self, *, durability: str, first: int) -> RegistryReply:
        with self._state.lock:
            self._check_place()
            state = self._state
            if state.place is not None:
                return self._reply(Status.EXISTS)
            self._begin()
            state.durability, state.closed, state.next = durability, "", first
            state.created_ms = self._server_time_ms()
            return self._reply(Status.CREATED)

    def take(self, pool: str, registration: str, *, wanted: int | None, owner: str) -> RegistryReply:
        with self._state.lock:
            self._check_place()
            state = self._state
            if state.place is None:
                return RegistryReply(Status.MISSING)
            now_ms = self._server_time_ms()
            number = self._number_of(pool)
            record = state.records.get(number)
            if record is not None:
                same = record.id == registration or record.confirmed_ms == 0
                again = wanted is not None and not record.alive_at(now_ms)
                if wanted not in (None, number) or not (same or again):
                    return self._reply(Status.NAMED, number, self._age_ms(record), record.owner)
            elif wanted is not None:
                number, other = wanted, state.records.get(wanted)
                if other is not None:
                    return self._reply(Status.USED, other.pool)
            elif state.closed:
                return self._reply(Status.CLOSED)
            elif state.next >= state.place.capacity:
                return self._reply(Status.FULL)
            else:
                number = state.next
            state.next = max(state.next, number + 1)
            if record is None or record.id != registration:
                state.records[number] = Record(registration, now_ms, 0, 0, pool, owner)
            return self._reply(Status.TAKEN, number)

    def _number_of(self, pool: str) -> int:
        return next(
            (number for number, record in self._state.records.items() if record.pool == pool), NO_NUMBER
        )

    def confirm(
        self, pool: str, registration: str, number: int, *, highest: int, first: bool, owner: str
    ) -> RegistryReply:
        with self._state.lock:
            self._check_place()
            self._begin()
            state, now_ms = self._state, self._server_time_ms()
            state.next = max(state.next, number + 1, highest + 1)
            record, named = state.records.get(number), self._number_of(pool)
            mine = record is not None and (record.pool, record.id) == (pool, registration)
            other = state.records.get(named) if named != number else None
            yields = not first
            if record is not None:
                yields = record.confirmed_ms == 0 and (record.pool == pool or not first)
            if not mine and (not yields or (other is not None and other.confirmed_ms)):
                state.conflicts += 1
                if record is not None:
                    return self._reply(Status.CONFLICT, number, record.pool)
                return self._reply(Status.CONFLICT, *((number, "") if other is None else (named, pool)))
            if other is not None:
                del state.records[named]
            taken_ms = record.taken_ms if record is not None and mine else now_ms
            state.records[number] = Record(registration, taken_ms, now_ms, 0, pool, owner)
            return self._reply(Status.CONFIRMED)

    def open(self, above: int = NO_NUMBER, *, read: str = "") -> RegistryReply:
        with self._state.lock:
            state = self._state
            if state.place is None:
                return RegistryReply(Status.MISSING)
            if read not in ("", state.incarnation):
                return self._reply(Status.CLOSED)
            state.next, state.closed = max(state.next, above + 1), ""
            return self._reply(Status.OPENED)

    def retire(self, number: int, registration: str = "") -> RegistryReply:
        with self._state.lock:
            state, now_ms = self._state, self._server_time_ms()
            if state.place is None:
                return RegistryReply(Status.MISSING)
            record = state.records.get(number)
            if record is None or registration not in ("", record.id):
                return self._reply(Status.UNKNOWN)
            if registration:
                state.records[number] = replace(record, retired_ms=now_ms)
                return self._reply(Status.RETIRED)
            if record.alive_at(now_ms):
                return self._reply(Status.ALIVE, record.pool, self._age_ms(record), record.owner)
            del state.records[number]
            return self._reply(Status.FREED, record.pool)

    def find(self, pool: str) -> tuple[int, Record, int] | None:
        with self._state.lock:
            number = self._number_of(pool)
            record = self._state.records.get(number)
            return None if record is None else (number, record, self._server_time_ms())

    def read(self) -> RegistryState | None:
        with self._state.lock:
            state = self._state
            if state.place is None:
                return None
            return RegistryState(
                name=self.name,
                now_ms=self._server_time_ms(),
                place=state.place,
                durability=state.durability,
                incarnation=state.incarnation,
                closed=state.closed,
                closed_ms=state.closed_ms,
                created_ms=state.created_ms,
                conflicts=state.conflicts,
                next_number=state.next,
                records=dict(sorted(state.records.items())),
            )

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a registry of its own."""

    def close(self) -> None:
        """Do nothing: the registry exists as long as an object of it."""


class ScriptRegistry(Scripted):
    """Base class of registries whose state is read and written by the scripts.

    Args:
        name: of the registry.
        place: where the caller's layout has the number; None: any.
        random_bytes: source of the nonces.
    """

    def __init__(
        self, name: str, place: Place | None, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.name, self.place = name, place
        self._seen = Seen()
        scripts = {script: load_script(script, __file__, ("registry",)) for script in REGISTRY_SCRIPTS}
        super().__init__(registry_signature(place), registry_key(name), scripts, random_bytes=random_bytes)

    @abstractmethod
    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        """Return the time in ms and these fields of the hash, all if none is named, without a script."""

    def mismatch(self, stored: str) -> ShardNumberRefused:
        other = wrong_format(self.signature, stored)
        if other:
            return ShardNumberRefused("", self.name, other)
        place, here = place_in(stored), self.place or ANY_PLACE
        return ShardNumberRefused(
            "",
            self.name,
            f"its numbers are {place.bits} bits wide, {place.shift} bits from the right of an id; in this layout they "
            f"are {here.bits} bits wide, {here.shift} bits from the right. Only numbers in the same place keep ids "
            "apart. Use a layout that has them there, or another registry",
        )

    def broken(self, field: str, value: str) -> PoolBroken:
        return PoolBroken(self.where, f"registry {self.name}", field, value)

    def _call(self, name: str, *args: str | int) -> RegistryReply:
        texts = self.ask(name, self._seen.incarnation, self._seen.version, *args)
        if texts == ["missing"]:
            return RegistryReply(Status.MISSING)
        try:
            status, redis_ms, incarnation, version, closed, highest, *fields = texts
            seen = Seen(incarnation, int(version))
            reply = RegistryReply(Status(status), int(redis_ms), seen, closed, int(highest), tuple(fields))
        except ValueError:
            raise self.unknown(texts) from None
        self._seen = seen
        return reply

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

    @abstractmethod
    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...


class RedisRegistry(RedisScripts, ScriptRegistry):
    """A registry in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what own_client() returned for one.
        name: of the registry.
        place: where the caller's layout has the number; None: any.
    """

    def __init__(self, server: Any, name: str, place: Place | None = None) -> None:
        ScriptRegistry.__init__(self, name, place)
        RedisScripts.__init__(self, server, 0)

    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            seconds, micros = self._client.time()
            if names:
                values = self._client.hmget(self._keys[0], names)
                pairs = zip(names, values, strict=True)
            else:
                pairs = self._client.hgetall(self._keys[0]).items()
            fields = {text_of(name): text_of(value) for name, value in pairs if value is not None}
        return seconds * 1000 + micros // 1000, fields
