"""The one generator of this process, which snowredis.next_id() and the integrations make ids with.

It is made at the first id, of what configure() was given and of SNOWREDIS_* variables, which are read then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from snowredis.connection import AllSettings, connect
from snowredis.errors import ConfigError, GeneratorClosed
from snowredis.runtime.aio import in_thread
from snowredis.runtime.generator import Generator
from snowredis.settings import check_names, from_environment


class _Source:
    """Where the process' generator comes from, and that generator while it is in use.

    The one place where it is set and cleared.

    Attributes:
        make: makes a generator, of what configure() was given.
        configured: what configure() was given.
        generators: {"generator": it}, or empty. A dict because setdefault() and pop() are atomic: a fork could leave
            a lock locked.
    """

    __slots__ = ("configured", "generators", "make")

    def __init__(self, make: Callable[[dict[str, Any]], Generator], configured: dict[str, Any]) -> None:
        self.make = make
        self.configured = configured
        self.generators: dict[str, Generator] = {}

    def generator(self) -> Generator:
        """Return the generator, a new one if there is none."""
        found = self.generators.get("generator")
        # of two threads that come here together one's generator is kept; the other's has claimed nothing
        return found or self.generators.setdefault("generator", self.make(self.configured))

    def take_out(self) -> Generator | None:
        return self.generators.pop("generator", None)


def _from_settings(configured: dict[str, Any]) -> Generator:
    return connect(**{**from_environment(os.environ), **configured})


# the last one counts: use() adds one
_sources = [_Source(_from_settings, {})]
# that of the last one, for next_id()
_generators = _sources[-1].generators


def configure(**settings: Unpack[AllSettings]) -> None:
    """Set what snowredis.next_id() uses: arguments of connect(), ``url`` among them.

    They come before SNOWREDIS_* variables, which apply to what is not set here. Connects to nothing.

    Raises:
        ConfigError: an unknown setting, or this process' generator is in use with other settings.
    """
    check_names(settings)
    source = _sources[-1]
    if settings == source.configured:
        return
    if source.generators:
        raise ConfigError(
            "this process makes ids with other settings already. Call configure() before the first id, or "
            "snowredis.close() before configure()."
        )
    source.configured = dict(settings)


def effective_settings() -> dict[str, Any]:
    """Return the arguments of connect() that the process' generator is made of. Raises ConfigError."""
    return from_environment(os.environ) | _sources[-1].configured


def process_generator() -> Generator:
    """Return the generator of this process; it is made at the first use. Raises ConfigError, LayoutError."""
    return _sources[-1].generator()


def next_id() -> int:
    """Make one id with the generator of this process. See Generator.next_id()."""
    generator = _generators.get("generator")
    if generator is None:
        generator = process_generator()
    return generator.next_id()


def next_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See Generator.next_ids()."""
    return process_generator().next_ids(count)


async def anext_id() -> int:
    """Make one id with the generator of this process. See Generator.anext_id()."""
    return await (await _aprocess_generator()).anext_id()


async def anext_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See Generator.anext_ids()."""
    return await (await _aprocess_generator()).anext_ids(count)


async def _aprocess_generator() -> Generator:
    generator = _generators.get("generator")
    return generator if generator is not None else await in_thread(process_generator)


def close() -> None:
    """Close this process' generator, which gives its worker id back. The next next_id() makes a new one."""
    generator = _sources[-1].take_out()
    if generator is not None:
        generator.close()


@contextlib.contextmanager
def use(generator: Generator | Callable[[], Generator]) -> Iterator[None]:
    """Let *generator* be the generator of this process, for all threads, until the with block ends.

    snowredis.next_id() and every integration make ids with it. What the process had before, generator and
    settings of configure(), is put back at the end. Blocks may be nested.

    Args:
        generator: a generator, which stays open after the block; after snowredis.close() in the block, ids raise
            GeneratorClosed. Or a function that returns a generator: it is called at the first id, and again after
            snowredis.close(); the last one is closed at the end of the block.
    """

    def make(_: dict[str, Any]) -> Generator:
        if not isinstance(generator, Generator):
            return generator()
        if generator.closed:
            raise GeneratorClosed(generator.pool)
        return generator

    source = _Source(make, dict(_sources[-1].configured))
    _sources.append(source)
    _select_last()
    try:
        yield
    finally:
        # not pop(): another thread's block may have begun later and go on
        _sources.remove(source)
        _select_last()
        last = source.take_out()
        if last is not None and last is not generator:
            last.close()


def _select_last() -> None:
    global _generators  # noqa: PLW0603 - next_id() looks it up at each call
    _generators = _sources[-1].generators
