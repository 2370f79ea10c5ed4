"""Ids of other kinds that the service makes besides those of its pools: GET /id?kind=uuid7, GET /id?tag=invoices.

Each is named by its tag, if the kind has tags, or by the name of its kind. Generators are opened at their first id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from snowredis.errors import ConfigError, SnowredisError
from snowredis.kinds.opening import KindAndSettings, parse_kind
from snowredis.kinds.protocol import IdGenerator
from snowredis.process.coroutines import in_thread
from snowredis.settings import KIND
from snowredis.web.messages import Problem


class ServedKind:
    """One generator of the service, of any kind but Snowflakes.

    Attributes:
        tag: its tag; "" if its kind has none.
        makes_text: whether its ids are str.
    """

    def __init__(self, declared: KindAndSettings, wait_s: float) -> None:
        self.kind, self.tag = declared.kind.name, str(declared.settings.get("tag", ""))
        self.makes_text = declared.describe().type is str
        self._declared, self._wait_s = declared, wait_s
        self._generator: IdGenerator[Any] | None = None
        self._lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """Name in metrics, which no pool can have."""
        return f"{self.kind}:{self.tag}"

    def id_now(self) -> int:
        """Return 0: the application makes these ids."""
        return 0

    async def make_ids(self, count: int) -> list[Any]:
        """Make *count* ids. Raises Problem, SnowredisError."""
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._make(count)
        except TimeoutError:
            detail = f"{self.name}: no id within {self._wait_s:g} s. Try again."
            raise Problem(503, "NotReady", detail, 1) from None

    async def _make(self, count: int) -> list[Any]:
        async with self._lock:
            if self._generator is None:
                self._generator = await in_thread(self._declared.open)
        if count == 1:
            return [await self._generator.anext_id()]
        return await self._generator.anext_ids(count)

    async def stop(self) -> None:
        """Close the generator."""
        if self._generator is not None:
            with contextlib.suppress(SnowredisError):
                await self._generator.aclose()
            self._generator = None


class ServedKinds:
    """All generators of the service that are no pools.

    Args:
        url: the service's Redis, for kinds whose URL is not given.
        texts: kinds, as snowredis.generator() takes them, with a URL for settings.

    Raises ConfigError for what cannot work. Connects to nothing.
    """

    def __init__(self, url: Any, texts: Sequence[str], wait_s: float) -> None:
        self.served: list[ServedKind] = []
        for text in texts:
            kind, settings = parse_kind(text)
            if kind.name == KIND.default:
                raise ConfigError(f"{text!r}: Snowflakes are served by pool. Name the pool in pools instead.")
            if "url" in kind.settings:
                settings = {"url": url, **settings}
            one = ServedKind(KindAndSettings(kind, kind.check(settings)), wait_s)
            if any(one.name == other.name for other in self.served):
                raise ConfigError(f"{text!r} is served twice. Name each kind, or each tag of it, once.")
            self.served.append(one)

    def find(self, query: Mapping[str, str]) -> ServedKind | None:
        """Return what a request names by ``kind`` or ``tag``; None if it names neither. Raises Problem."""
        kind, tag = query.get("kind"), query.get("tag")
        if kind is None and tag is None:
            return None
        if "pool" in query:
            raise Problem(400, "BadQuery", "name a pool, or a kind or a tag")
        found = [one for one in self.served if (kind is None or one.kind == kind) and (tag is None or one.tag == tag)]
        if len(found) == 1:
            return found[0]
        what = ", ".join(
            f"{name} {value[:64]!r}" for name, value in (("kind", kind), ("tag", tag)) if value is not None
        )
        served = ", ".join(f"kind={one.kind}" + (f"&tag={one.tag}" if one.tag else "") for one in self.served)
        if found:
            raise Problem(400, "BadQuery", f"{what} is not one of what is served, but several: {served}")
        raise Problem(404, "KindNotFound", f"this service has no {what}; it has {served or 'pools only'}")

    async def stop(self) -> None:
        """Close all generators."""
        await asyncio.gather(*(one.stop() for one in self.served))
