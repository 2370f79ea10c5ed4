"""Ids of other kinds that the service makes besides those of its pools: GET /id?kind=uuid7, GET /id?tag=invoices.

Each is named by its tag, if the kind has tags, or by the name of its kind. Generators are opened at their first id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from snowredis.errors import ConfigError, SnowredisError
from snowredis.kinds.opening import KindAndSettings, parse_kind
from snowredis.kinds.protocol import IdGenerator
from snowredis.monitor.metric_values import Family
from snowredis.monitor.metrics import TAGS
from snowredis.monitor.status import LEVELS, TagVerdict
from snowredis.numbers.watch import TagState, TagWatch
from snowredis.process.coroutines import in_thread
from snowredis.settings import KIND
from snowredis.web.messages import Problem
from snowredis.web.records import Kinds, KindState

log = logging.getLogger("snowredis")

# kinds whose numbers are those of a tag of segments
_OF_TAGS = ("segment", "ticket")
# between two looks at the tags; while a page is open, it looks more often
READ_EVERY_S = 5.0


class ServedKind:
    """One generator of the service, of any kind but Snowflakes.

    Attributes:
        tag: its tag; "" if its kind has none.
        makes_text: whether its ids are str.
        tag_state: state of its tag when it was read last; None if it was not read yet, or has none.
    """

    def __init__(self, declared: KindAndSettings, wait_s: float) -> None:
        self.kind, self.tag = declared.kind.name, str(declared.settings.get("tag", ""))
        self.description = declared.describe()
        self.makes_text = self.description.type is str
        self._declared, self._wait_s = declared, wait_s
        self._generator: IdGenerator[Any] | None = None
        self._lock = asyncio.Lock()
        self._watch = TagWatch(declared.settings) if self.kind in _OF_TAGS else None
        self.tag_state: TagState | None = None

    @property
    def name(self) -> str:
        """Name in metrics, which no pool can have."""
        return f"{self.kind}:{self.tag}"

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

    def state(self) -> KindState:
        """Return what its ids look like, what its generator in this process has, and the state of its tag.

        Blocks for a round trip to each server of the tag.
        """
        described = self.description
        return KindState(
            self.kind,
            self.tag,
            described.type.__name__,  # type: ignore[arg-type]  # one of four names
            described.text_length,
            described.sortable,
            described.guessable,
            described.leaks,
            described.needs,
            # segments: step, numbers at hand, prefetches, waits
            status=getattr(self._generator, "status", None),
            tag_state=self.read_tag(),
        )

    def read_tag(self) -> TagState | None:
        """Read the state of its tag; None if it has none. Blocks for a round trip to each server."""
        if self._watch is not None:
            status = getattr(self._generator, "status", None)
            self.tag_state = self._watch.read(status.tag_rate if status is not None else None)
        return self.tag_state

    async def stop(self) -> None:
        """Close the generator."""
        if self._generator is not None:
            with contextlib.suppress(SnowredisError):
                await self._generator.aclose()
            self._generator = None
        if self._watch is not None:
            await in_thread(self._watch.close)


class ServedKinds:
    """All generators of the service that are no pools.

    Args:
        url: the service's Redis, for kinds whose URL is not given.
        texts: kinds, as snowredis.generator() takes them, with a URL for settings.

    Raises ConfigError for what cannot work. Connects to nothing.
    """

    def __init__(self, url: Any, texts: Sequence[str], wait_s: float) -> None:
        self.served: list[ServedKind] = []
        self._task: asyncio.Task[None] | None = None
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

    def state(self) -> Kinds:
        """Return all of them with their states. Blocks as ServedKind.state()."""
        return Kinds(tuple(one.state() for one in self.served))

    @property
    def verdicts(self) -> list[TagVerdict]:
        """The states of the tags, as they were read last."""
        known = [(one.tag, one.tag_state) for one in self.served if one.tag_state is not None]
        return [TagVerdict(tag, state.state, state.level) for tag, state in known]

    def families(self) -> list[Family]:
        """Return the metrics of the tags, as they were read last."""
        family = Family(TAGS[0])
        for each in self.verdicts:
            family.samples[each.name,] = float(LEVELS.index(each.level))
        return [family] if family.samples else []

    def start(self) -> None:
        """Begin to read the states of the tags."""
        if any(one.kind in _OF_TAGS for one in self.served):
            self._task = asyncio.create_task(self._read_tags())

    async def _read_tags(self) -> None:
        while True:
            for one in self.served:
                try:
                    await in_thread(one.read_tag)
                except Exception:
                    log.exception("%s: its tag cannot be read; trying again", one.name)
            await asyncio.sleep(READ_EVERY_S)

    async def stop(self) -> None:
        """Close all generators."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(one.stop() for one in self.served))
