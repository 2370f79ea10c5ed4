"""Run the Lua scripts of something that is stored in Redis: a pool, a tag of numbers.

One mechanism for all of them: the common beginning of the scripts, the nonce that shows that a reply belongs to its
request, the signature with the format, the three refusals that every script has, and the parser of all other replies.
Independent of redis-py: a subclass says how one script is run, in Redis (runner.py) or in a simulation.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from snowredis.errors import SnowredisError, StoreUnavailable

# put in front of every script, in this order
PROLOGUE = ("identity", "arguments")
# bytes of a text that is read from Redis; a record, the longest text that scripts write, has fewer than 3,000
LONGEST_TEXT = 4_096


class Script:
    """One script with the common parts in front, and the SHA1 that Redis knows it by."""

    def __init__(self, name: str, texts: Iterable[str]) -> None:
        self.name = name
        self.source = "\n".join(texts)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def read_only(where: str, reason: str, advice: str = "Connect to the master, not to a replica") -> StoreUnavailable:
    """Return the error for a server that accepts no writes."""
    error = StoreUnavailable(where, f"it does not accept writes: {reason}", advice)
    error.is_read_only = True
    return error


def read_lua(name: str, module: str = __file__) -> str:
    """Return the text of lua/NAME.lua beside the file *module*; reads it at the first call."""
    # importlib.resources does the same, and takes longer than all that is read here
    loader: Any = __spec__.loader
    data: bytes = loader.get_data(str(Path(module).with_name("lua") / f"{name}.lua"))
    return data.decode()


@functools.cache
def load_script(name: str, module: str, parts: tuple[str, ...] = ()) -> Script:
    """Return the script lua/NAME.lua beside the file *module*, after the prologue and *parts* of the same directory."""
    return Script(name, (*map(read_lua, PROLOGUE), *(read_lua(part, module) for part in (*parts, name))))


def text_of(value: bytes | str) -> str:
    """Return a value that Redis holds as text, cut to LONGEST_TEXT bytes; bytes that are no UTF-8 are replaced.

    All texts from Redis pass through here: anybody who may write to Redis may have written them.
    """
    start = value[:LONGEST_TEXT]
    return start.decode("utf-8", "replace") if isinstance(start, bytes) else start


def split_reply(values: Sequence[bytes | str]) -> list[str]:
    """Return the fields of a reply: its texts, or the lines of a single one, which is cheaper to read."""
    texts = list(map(text_of, values))
    return texts[0].split("\n") if len(texts) == 1 else texts


def with_format(number: int, constants: str) -> str:
    """Return the signature of something that is stored in format *number*; see FORMATS in snowredis.signatures."""
    return f"format={number} {constants}"


class Reason(StrEnum):
    """Base class of reasons: codes that are str and have a ``text``."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member


def flag(text: str) -> bool:
    """Read a field that is 0 or 1."""
    return text == "1"


class ScriptReply:
    """Base class of the replies of scripts: one class for each status.

    A subclass declares what reads each of the fields that it adds. Its status is the last word of its name, so that
    "granted" is Granted, unless it declares another one.
    """

    # a plain class: six dataclasses would generate their methods for 3 ms before the first id
    READERS: ClassVar[dict[str, Callable[[str], Any]]] = {}
    STATUS: ClassVar[str]

    def __init_subclass__(cls, status: str = "", **readers: Callable[[str], Any]) -> None:
        cls.READERS = cls.READERS | readers
        cls.STATUS = status or re.split("(?=[A-Z])", cls.__name__)[-1].lower()

    def __init__(self, *values: object) -> None:
        self.__dict__.update(zip(self.READERS, values, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


# code of a server that does not show its identity -> why
WHY_UNIDENTIFIED = {
    "info-refused": "it refuses INFO inside scripts",
    "no-run-id": "its INFO shows no run_id",
    "no-replication-id": "its INFO shows no master_replid",
}


class Scripted(ABC):
    """Base class of everything whose state in Redis is read and written by scripts only.

    Args:
        signature: its constants, with the format; another stored signature is refused by every script.
        keys: all of its keys, in one Cluster slot.
        scripts: by name; read before this process may fork, since a child could wait for ever for a file that another
            thread was reading.
        random_bytes: source of the nonces.
    """

    where: str
    # what it is, and what to do where its hash holds what no script writes
    if_broken: tuple[str, str]
    # the server, as crash records tell it from others: see Store.locator
    locator = ""
    # what would repeat at a server that loses data and does not show its identity, what is refused, and what to do
    without_identity = (
        "ids",
        "claimed",
        'set durability="assured" if this Redis never loses an acknowledged write, or durability="none" if it may: '
        "every new worker then waits",
    )

    def __init__(
        self,
        signature: str,
        keys: Sequence[str],
        scripts: Mapping[str, Script],
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.signature = signature
        self._keys, self._scripts, self._random_bytes = keys, scripts, random_bytes

    @abstractmethod
    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script* once, atomically. Raises StoreUnavailable."""

    def reconnect(self, *, also_in_use: bool = True) -> None:  # noqa: B027 - without connections nothing is to be done
        """Drop the idle connections; also those that other threads of the application use, if that is wanted."""

    @abstractmethod
    def mismatch(self, stored: str) -> SnowredisError:
        """Return the error for a *stored* signature that is not this one."""

    def broken(self, field: str, value: str) -> StoreUnavailable:
        """Return the error for a *field* of the hash with a *value* that no script writes."""
        what, advice = self.if_broken
        reason = f"{what} is broken: its field {field!a} holds {value[:60]!a}, which snowredis never writes"
        return StoreUnavailable(self.where, f"{reason}. Nothing was changed", advice, "broken")

    def unidentified(self, code: str) -> StoreUnavailable:
        """Return the error for a server that does not show its identity; or for its clock."""
        if code == "clock":
            return StoreUnavailable(
                self.where,
                "it may have lost data, and its clock is far behind the clock of this host, so it cannot say from when "
                "on ids are unused. Nothing was claimed",
                "Correct the clock (NTP) of the host that is wrong",
                code,
            )
        what, refused, otherwise = self.without_identity
        return StoreUnavailable(
            self.where,
            f"it does not show its identity: {WHY_UNIDENTIFIED.get(code, code)}. A restart or failover that loses data "
            f"would go unnoticed and {what} would repeat, so nothing was {refused}",
            f"If INFO is refused, allow it for the user in the URL. Otherwise {otherwise}",
            code,
        )

    def reply_in(self, texts: Sequence[str], expected: Iterable[type[ScriptReply]]) -> Any:
        """Return the reply in *texts*, of one of the *expected* classes.

        Raises StoreUnavailable for any other text: no script of this version sends it.
        """
        # ValueError: of another number of fields, or in another form
        with contextlib.suppress(ValueError):
            status, *fields = texts
            for each in expected:
                if status == each.STATUS:
                    return each(*(read(text) for read, text in zip(each.READERS.values(), fields, strict=True)))
        raise StoreUnavailable(self.where, f"unknown reply {list(texts)!r}", "Is another version of snowredis in use?")

    def request(self, name: str, *args: str | int) -> tuple[Script, Sequence[str], tuple[str | int, ...]]:
        """Return the arguments of run() for the script *name*, with *args* after the signature and a nonce."""
        return self._scripts[name], self._keys, (self.signature, self._random_bytes(16).hex(), *args)

    def texts_of(self, request: Sequence[Any], values: Sequence[bytes | str]) -> list[str]:
        """Return *values*, the reply to *request*, as texts without the nonce.

        Raises StoreUnavailable and its subclasses, and what mismatch() and broken() return.
        """
        *texts, echo = split_reply(values) or [""]
        if echo != request[2][1]:
            # a connection whose replies are one behind: of a fork in the middle of a call, or by a proxy
            self.reconnect()
            raise StoreUnavailable(self.where, "it sent the reply to another request; the connection was dropped")
        match texts:
            case ["unidentified", "replica"]:
                # a demoted master keeps its connections; a new one may lead to the present master
                self.reconnect()
                raise read_only(self.where, "it is a replica")
            case ["signature", stored]:
                raise self.mismatch(stored)
            case ["unidentified", code]:
                raise self.unidentified(code)
            case ["broken", field, value]:
                raise self.broken(field, value)
        return texts
