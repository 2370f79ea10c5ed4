"""Description of the ids of a generator: what they look like, and what comes with them.

Pure. A Django field, an SQLAlchemy type or the HTTP service chooses its column or its JSON from this, and needs no
generator for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias
from uuid import UUID

from snowredis.core.layout import Layout

# facts that ids reveal: when they were made; which process made them; how many there are
Leak: TypeAlias = Literal["time", "worker", "volume"]
# servers that have to be reachable while ids are made
Need: TypeAlias = Literal["redis", "database"]


@dataclass(frozen=True, slots=True)
class IdDescription:
    """Description of the ids of one generator.

    Attributes:
        kind: name of the kind, for snowredis.generator().
        type: type of an id in Python: int, str, UUID or bytes.
        bits: the most bits that an id has; for text, the bits that it is the text of, and None if there are none.
        text_length: the most characters of an id written as text; for an int in decimal.
        sortable: True if later ids sort after earlier ones, apart from ids that were made at about the same time.
        guessable: True if somebody who knows some ids can find others with few attempts.
        leaks: what somebody who sees ids learns.
        needs: what has to be reachable while ids are made; (): nothing.
    """

    kind: str
    type: type[int | str | UUID | bytes]
    bits: int | None
    text_length: int
    sortable: bool
    guessable: bool
    leaks: tuple[Leak, ...] = ()
    needs: tuple[Need, ...] = ()

    @property
    def is_number(self) -> bool:
        """True for ids that fit a signed 64-bit column."""
        return self.type is int

    @property
    def may_block(self) -> bool:
        """True if an id may have to wait for a server."""
        return bool(self.needs)


def describe_snowflake(layout: Layout) -> IdDescription:
    """Return the description of ids of *layout*."""
    bits = layout.total_bits
    leaks: tuple[Leak, ...] = ("time", "worker", "volume")
    length = len(str((1 << bits) - 1))
    return IdDescription("snowflake", int, bits, length, sortable=True, guessable=True, leaks=leaks, needs=("redis",))
