"""The generator of this process, with which snowredis.next_id() and the integrations make ids.

It is created at the first id, from the settings of configure() and SNOWREDIS_* variables, which are read then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from snowredis.connection import AllSettings, connect
from snowredis.errors import ConfigError, GeneratorClosed
from snowredis.runtime.aio import in_thread
from snowredis.runtime.fast_path import bind
from snowredis.runtime.fast_path import next_id as next_id  # noqa: PLC0414 - one of this module's functions
from snowredis.runtime.generator import Generator
from snowredis.settings import check_names, from_environment


class _Source:
    """Source of the process' generator; also holds the generator while it is in use.

    Attributes:
        create: returns a generator.
        configured: settings of configure().
        generators: {"generator": the generator}, or empty. A dict because setdefault() and pop() are atomic: a lock
            could be inherited locked in a fork.
    """

    __slots__ = ("configured", "create", "generators")

    def __init__(self, create: Callable[[], Generator], configured: dict[str, Any]) -> None:
        self.create = create
        self.configured = configured
        self.generators: dict[str, Generator] = {}

    def generator(self) -> Generator:
        """Return the generator; create it if there is none."""
        existing = self.generators.get("generator")
        if existing is None:
            # if two threads create one each, the first is kept; the other has claimed nothing
            existing = self.generators.setdefault("generator", self.create())
        return existing

    def take_out(self) -> Generator | None:
        """Remove the generator and return it; None if there is none."""
        # first, too: else an error of a signal handler, or a fork, before the second would leave next_id() with it
        bind(None, _first_id)
        generator = self.generators.pop("generator", None)
        _bind()
        return generator


# the last one is in use; use() adds one
_sources = [_Source(lambda: connect(**effective_settings()), {})]


def configure(**settings: Unpack[AllSettings]) -> None:
    """Set arguments of connect(), including ``url``, for the generator of this process.

    SNOWREDIS_* variables apply to arguments that are not set here. Connects to nothing.

    Raises:
        ConfigError: a setting is unknown, or this process' generator is in use with other settings.
    """
    check_names(settings)
    source = _sources[-1]
    if settings == source.configured:
        return
    if source.generators:
        raise ConfigError(
            "this process already makes ids with other settings. Call configure() before the first id, or "
            "snowredis.close() before configure()."
        )
    source.configured = dict(settings)


def effective_settings() -> dict[str, Any]:
    """Return the arguments of connect() for the generator of this process. Raises ConfigError."""
    return from_environment(os.environ) | _sources[-1].configured


def process_generator() -> Generator:
    """Return the generator of this process; the first call creates it. Raises ConfigError, LayoutError."""
    return _sources[-1].generator()


def _first_id() -> int:
    generator = process_generator()
    # here, not where it is created: what was interrupted there is made up for by the next id
    _bind()
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
    generator = _sources[-1].generators.get("generator")
    return generator if generator is not None else await in_thread(process_generator)


def close() -> None:
    """Close the generator of this process, which releases its worker id. The next next_id() creates another one.

    Blocks as Generator.close() does.
    """
    generator = _sources[-1].take_out()
    if generator is not None:
        generator.close()


@contextlib.contextmanager
def use(generator: Generator | Callable[[], Generator]) -> Iterator[None]:
    """Use *generator* as the generator of this process, in all threads, until the with block ends.

    snowredis.next_id() and every integration make ids with it. The generator and the settings of configure() that were
    in use before are restored at the end. Blocks can be nested.

    Args:
        generator: a generator, which stays open after the block; after snowredis.close() in the block, ids raise
            GeneratorClosed. Or a function that returns a generator: it is called at the first id, and again after
            snowredis.close(); its last generator is closed at the end of the block.
    """

    def create() -> Generator:
        if not isinstance(generator, Generator):
            return generator()
        if generator.closed:
            raise GeneratorClosed(generator.pool)
        return generator

    source = _Source(create, dict(_sources[-1].configured))
    _sources.append(source)
    _bind()
    try:
        yield
    finally:
        # not pop(): a block that another thread entered later may still be open
        _sources.remove(source)
        _bind()
        last = source.take_out()
        if last is not None and last is not generator:
            last.close()


def _bind() -> None:
    """Let next_id() use the generator that is in use now."""
    while True:
        generator = _sources[-1].generators.get("generator")
        bind(generator, _first_id)
        # another thread may have bound another one meanwhile
        if generator is _sources[-1].generators.get("generator"):
            return


_bind()
