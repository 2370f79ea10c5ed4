"""Ids of a column or a path that names a kind of ids, such as "uuid7" or "segment:?tag=invoices"."""

from __future__ import annotations

import functools
from typing import Any

from snowredis import process_generator
from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError
from snowredis.kinds.base import IdGenerator
from snowredis.kinds.lookup import resolve


class IdSource:
    """Generator of a kind that is opened at its first id, and knows before what its ids look like.

    Settings that are not given are those of the process: of snowredis.configure() and of SNOWREDIS_* variables. With
    the kind of the process and no settings, it is the generator of the process.

    Args:
        kind: as snowredis.generator() takes it.
        settings: of the kind.

    Raises ConfigError for an unknown kind, and for settings that it does not know. Connects to nothing.
    """

    def __init__(self, kind: str, settings: dict[str, Any] | None = None) -> None:
        self._kind, self._settings = kind, settings or {}
        self._declared = resolve(kind, self._settings, {})
        # a dict because setdefault() is atomic: a lock could be inherited locked in a fork
        self._generators: dict[str, IdGenerator[Any]] = {}

    @functools.cached_property
    def description(self) -> IdDescription:
        """Return the description of its ids."""
        return self._declared.describe()

    def generator(self) -> IdGenerator[Any]:
        """Return the generator; the first call creates it. Raises ConfigError, and what the kind raises."""
        existing = self._generators.get("generator")
        if existing is not None:
            return existing
        kind, settings = self._declared
        if not settings and process_generator.effective_kind().kind is kind:
            # it is not stored here, since snowredis.close() and testing.use() replace it
            of_process: IdGenerator[Any] = process_generator.process_generator()
            return of_process
        opened = process_generator.effective_kind(self._kind, self._settings).open()
        if opened.description.type is not self.description.type:
            opened.close()
            raise ConfigError(
                f"the ids of {self._kind!r} are {_name(opened.description)}, but the column was declared for "
                f"{_name(self.description)}. Name what differs, such as form, where the column is declared."
            )
        kept = self._generators.setdefault("generator", opened)
        if kept is not opened:
            # another thread was faster
            opened.close()
        return kept

    def next_id(self) -> Any:
        """Make one id. Blocks and raises as the kind does."""
        return self.generator().next_id()

    def next_ids(self, count: int) -> list[Any]:
        """Make *count* ids at once."""
        return self.generator().next_ids(count)

    async def anext_ids(self, count: int) -> list[Any]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop."""
        return await self.generator().anext_ids(count)

    def __reduce__(self) -> tuple[Any, ...]:
        return IdSource, (self._kind, self._settings)

    def __repr__(self) -> str:
        return f"IdSource({self._kind!r})"


def _name(description: IdDescription) -> str:
    return description.type.__name__
