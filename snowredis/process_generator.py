"""The generator of this process, with which snowredis.next_id() and the integrations make ids.

It is created at the first id, from the settings of configure() and SNOWREDIS_* variables, which are read then: by
connect(), or by generator() for another kind of ids. configure() also sets these variables, for the processes that this
one starts.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

from snowredis.connection import connect
from snowredis.core.layout import Layout, layout_spec
from snowredis.errors import PREFIX, ConfigError, GeneratorClosed
from snowredis.process.coroutines import in_thread
from snowredis.settings import DEFAULT_URL, KIND, OBJECT, SETTINGS, AllSettings, check_names, from_environment
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.ids.fast_path import bind
from snowredis.snowflake.ids.fast_path import next_id as next_id  # noqa: PLC0414 - one of this module's functions

if TYPE_CHECKING:
    from snowredis.core.description import IdDescription
    from snowredis.kinds.base import IdGenerator
    from snowredis.kinds.lookup import KindAndSettings


# the settings that mean the same for every kind of ids, and their variables
_SHARED = ("url", "min_replicas")
_VARIABLES = tuple(f"{PREFIX}{name.upper()}" for name in _SHARED)


class _Source:
    """Source of the process' generator; also holds the generator while it is in use.

    Attributes:
        create: returns a generator.
        configured: arguments of configure(); "kind" is its first.
        generators: {"generator": the generator}, or empty. A dict because setdefault() and pop() are atomic: a lock
            could be inherited locked in a fork.
    """

    __slots__ = ("configured", "create", "generators")

    def __init__(self, create: Callable[[], IdGenerator[Any]], configured: dict[str, Any]) -> None:
        self.create = create
        self.configured = configured
        self.generators: dict[str, IdGenerator[Any]] = {}

    def generator(self) -> IdGenerator[Any]:
        """Return the generator; create it if there is none."""
        existing = self.generators.get("generator")
        if existing is None:
            # if two threads create one each, the first is kept; the other has claimed nothing
            existing = self.generators.setdefault("generator", self.create())
        return existing

    def remove(self) -> IdGenerator[Any] | None:
        """Remove the generator and return it; None if there is none."""
        # bound first, too: otherwise an error of a signal handler, or a fork, would leave next_id() with the generator
        bind(None, _first_id)
        generator = self.generators.pop("generator", None)
        _bind()
        return generator


def _create() -> IdGenerator[Any]:
    # the other modules that this needs are not loaded for ids that are Snowflakes
    return connect(**effective_settings()) if _kind() is None else effective_kind().open()


# the last one is in use; use() adds one
_sources = [_Source(_create, {})]


@overload
def configure(**settings: Unpack[AllSettings]) -> None: ...


@overload
def configure(kind: str, /, **settings: Any) -> None: ...


def configure(kind: str | None = None, /, **settings: Any) -> None:
    """Set arguments of connect(), including ``url``, or of another kind of ids, for the generator of this process.

    SNOWREDIS_* variables apply to arguments that are not set here. Those that are become variables, so that processes
    that this one starts have them; an object, such as a client, is refused there. Connects to nothing, but calls
    preload().

    Args:
        kind: kind of ids, as snowredis.generator() takes it; default: SNOWREDIS_KIND, else Snowflakes.
            snowredis.next_id() and the other functions return ids of this kind.
        settings: of the kind.

    Raises:
        ConfigError: a kind or a setting is unknown, or this process' generator is in use with other settings.
    """
    of_environment = _inherited(KIND.variable)
    if kind is None and not of_environment:
        # values are checked where they are used: Django's checks report all that are wrong
        check_names(settings)
    else:
        from snowredis.kinds.lookup import resolve

        resolve(kind or of_environment, {}, {}).kind.check(settings)
    source = _sources[-1]
    configured = settings if kind is None else {"kind": kind, **settings}
    if configured == source.configured:
        return
    if source.generators:
        raise ConfigError(
            "this process already makes ids with other settings. Call configure() before the first id, or "
            "snowredis.close() before configure()."
        )
    source.configured = configured
    _hand_on()
    if _kind() is None:
        preload()


# variable -> what _hand_on() has set, and what was there before
_handed_on: dict[str, tuple[str, str | None]] = {}


def _hand_on() -> None:
    """Set the variables of what is configured now, in place of those of the last call, for processes that start.

    A value that has no text, such as a client, is a variable that another process refuses.
    """
    settings = dict(_sources[-1].configured)
    kind = settings.pop("kind", None)
    declared = SETTINGS if _kind() is None else effective_kind().kind.settings
    for variable, (ours, before) in _handed_on.items():
        # somebody may have set it since
        if os.environ.get(variable) == ours:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before
    texts = {KIND.variable: kind} if kind else {}
    for name, value in settings.items():
        if value is not None:
            # no variable sets a clock: with one, another process could only make other ids
            texts[declared["url" if name == "clock" else name].variable] = _text_of(declared[name].kind.convert(value))
    for variable, text in texts.items():
        if text.startswith(OBJECT):
            # a program that reads the variable itself, as to make this client, still can in the processes it starts
            texts[variable] = os.environ.get(variable, "") + text
    _handed_on.clear()
    _handed_on.update({variable: (text, os.environ.get(variable)) for variable, text in texts.items()})
    os.environ.update(texts)


def _text_of(value: Any) -> str:
    """Return *value* as Setting.read() parses it; text that it refuses if there is none."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    if isinstance(value, Layout):
        return layout_spec(value)
    return str(value) if isinstance(value, str | int | float) else f"{OBJECT}{type(value).__name__}"


def _inherited(variable: str) -> str | None:
    """Return the value of *variable* without what _hand_on() has set."""
    return _handed_on[variable][1] if variable in _handed_on else os.environ.get(variable)


def effective_settings() -> dict[str, Any]:
    """Return the arguments of connect() for the generator of this process; {} if its ids are of another kind.

    Raises ConfigError.
    """
    if _kind() is None:
        return from_environment(os.environ, given=_sources[-1].configured)
    kind, settings = effective_kind()
    return settings if kind.name == KIND.default else {}


def effective_kind(kind: str | None = None, settings: Mapping[str, Any] | None = None) -> KindAndSettings:
    """Return the kind of ids of this process, with the settings of configure() and of variables.

    Args:
        kind: another kind, as snowredis.generator() takes it.
        settings: of *kind*. Those that are not given are those of this process if its ids are of the same kind. For
            another kind, only those of the server count (_SHARED): a tag or a maximum means something else there.

    Raises ConfigError.
    """
    from snowredis.kinds.lookup import resolve

    configured = {name: value for name, value in _sources[-1].configured.items() if name != "kind"}
    if kind is None:
        return resolve(_kind(), configured, os.environ)
    declared, in_url = resolve(kind, {}, {})
    is_ours = declared.name == resolve(_kind(), {}, {}).kind.name
    known = {
        name: value for name, value in configured.items() if name in declared.settings and (is_ours or name in _SHARED)
    }
    variables = os.environ if is_ours else {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return resolve(kind, known | in_url | dict(settings or {}), variables)


def preload() -> None:
    """Load what the first Snowflake needs, in a process that forks: each child would load it. Connects to nothing."""
    import snowredis.connection  # noqa: F401 - it loads the rest
    from snowredis.snowflake.protocol import redis_store
    from snowredis.snowflake.protocol.open import open_server

    # redis-py imports more when a client is made
    open_server(DEFAULT_URL, 0)
    for name in ("claim", "renew", "release"):
        redis_store.load(name)


def _kind() -> str | None:
    """Return what configure() or the environment says of the kind of ids; None for Snowflakes."""
    return _sources[-1].configured.get("kind") or _inherited(KIND.variable) or None


def process_generator() -> Any:
    """Return the generator of this process, which the first call creates: a SnowflakeGenerator, or one of another kind.

    Raises ConfigError, LayoutError.
    """
    return _sources[-1].generator()


def _first_id() -> int:
    generator = process_generator()
    # bound here, and not where it is created: the next id makes up for what was interrupted there
    _bind()
    an_id: int = generator.next_id()
    return an_id


def _next_of(generator: IdGenerator[Any]) -> Any:
    # looked up at each call: the method of a closed generator may be another one
    return generator.next_id()


def next_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See SnowflakeGenerator.next_ids()."""
    return _sources[-1].generator().next_ids(count)


async def anext_id() -> int:
    """Make one id with the generator of this process. See SnowflakeGenerator.anext_id()."""
    an_id: int = await (await _aprocess_generator()).anext_id()
    return an_id


async def anext_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See SnowflakeGenerator.anext_ids()."""
    return await (await _aprocess_generator()).anext_ids(count)


async def _aprocess_generator() -> IdGenerator[Any]:
    generator = _sources[-1].generators.get("generator")
    return generator if generator is not None else await in_thread(process_generator)


def close() -> None:
    """Close the generator of this process, which releases its worker id. The next next_id() creates another one.

    Blocks as SnowflakeGenerator.close() does.
    """
    generator = _sources[-1].remove()
    if generator is not None:
        generator.close()


@contextlib.contextmanager
def use(generator: IdGenerator[Any] | Callable[[], IdGenerator[Any]]) -> Iterator[None]:
    """Use *generator* as the generator of this process, in all threads, until the with block ends.

    snowredis.next_id() and every integration make ids with it. The generator and the settings of configure() that were
    in use before are restored at the end. Blocks can be nested.

    Args:
        generator: a generator of any kind, which stays open after the block; after snowredis.close() in the block, ids
            raise GeneratorClosed. Or a function that returns a generator: it is called at the first id, and again
            after snowredis.close(); its last generator is closed at the end of the block.
    """

    def create() -> IdGenerator[Any]:
        given: Any = generator
        ids: IdGenerator[Any] = given if hasattr(given, "next_id") else given()
        if ids is given and ids.closed:
            raise GeneratorClosed(getattr(given, "pool", ""), ids.description.kind)
        return ids

    source = _Source(create, dict(_sources[-1].configured))
    _sources.append(source)
    _bind()
    try:
        yield
    finally:
        # pop() would be wrong: a block that another thread entered later may still be open
        _sources.remove(source)
        _bind()
        if source.configured != _sources[-1].configured:
            _hand_on()
        last = source.remove()
        if last is not None and last is not generator:
            last.close()


def is_replaced() -> bool:
    """Return whether a block of use() is open."""
    return len(_sources) > 1


def _bind() -> None:
    """Let next_id() use the generator that is in use now."""
    while True:
        generator = _sources[-1].generators.get("generator")
        if generator is None or isinstance(generator, SnowflakeGenerator):
            bind(generator, _first_id)
        else:
            bind(None, functools.partial(_next_of, generator))
        # another thread may have bound another one meanwhile
        if generator is _sources[-1].generators.get("generator"):
            return


# --- generators of columns -------------------------------------------------------------------------


class IdSource:
    """Generator of a kind that is opened at its first id, for a column; it knows before what its ids look like.

    Settings that are not given are those of the process: of snowredis.configure() and of SNOWREDIS_* variables. With
    the kind of the process and no settings, it is the generator of the process.

    Args:
        kind: as snowredis.generator() takes it, such as "uuid7" or "segment:?tag=invoices".
        settings: of the kind.

    Raises ConfigError for an unknown kind, and for settings that it does not know. Connects to nothing.
    """

    def __init__(self, kind: str, settings: dict[str, Any] | None = None) -> None:
        from snowredis.kinds.lookup import resolve

        self._kind, self._settings = kind, settings or {}
        self._declared = resolve(kind, self._settings, {})
        self._own = _Source(self._open, {})

    @functools.cached_property
    def description(self) -> IdDescription:
        """Return the description of its ids."""
        return self._declared.describe()

    def generator(self) -> IdGenerator[Any]:
        """Return the generator; the first call creates it. Raises ConfigError, and what the kind raises."""
        kind, settings = self._declared
        if not settings and not self._own.generators and effective_kind().kind is kind:
            # it is not kept here, since close() and use() replace it
            return _sources[-1].generator()
        return self._own.generator()

    def _open(self) -> IdGenerator[Any]:
        opened = effective_kind(self._kind, self._settings).open()
        made, declared = (each.description.type.__name__ for each in (opened, self))
        if made != declared:
            opened.close()
            raise ConfigError(
                f"the ids of {self._kind!r} are {made}, but the column was declared for {declared}. Name what differs, "
                "such as form, where the column is declared."
            )
        return opened

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


_bind()
