"""snowredis.generator(): make a generator of any kind, by name, by URL, or from the environment.

The kinds of this package are listed here, so that they are found without a look at what is installed. Those of other
packages are found by their entry points, whose objects are IdKind:

    [project.entry-points."snowredis.generators"]
    nanoid = "our_package.ids:NANOID"

A URL names the kind before the server's own scheme, and settings of the kind in its query:

    segment+redis://localhost:6379/0?tag=invoices
    snowflake+redis://localhost:6379/0?pool=orders&ttl=20&socket_timeout=2
    uuid7:?form=text

A name in the query that is no setting of the kind stays in the server's URL, for redis-py or SQLAlchemy, which refuse
what they do not know. One that looks like a mistyped setting is refused here.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, overload
from urllib.parse import parse_qsl, urlencode, urlsplit

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError, did_you_mean, nearest
from snowredis.kinds.base import IdGenerator, IdKind
from snowredis.settings import KIND, AllSettings, from_environment

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints
    from uuid import UUID

    from snowredis.snowflake.generator import SnowflakeGenerator


GROUP = "snowredis.generators"

# name -> module and attribute; pyproject.toml declares the same as entry points
OUR_KINDS = {
    "snowflake": "snowredis.kinds.base:SNOWFLAKE",
    "segment": "snowredis.numbers.segments:SEGMENT",
    "dated": "snowredis.numbers.dated:DATED",
    "uuid7": "snowredis.kinds.libraries:UUID7",
    "uuid4": "snowredis.kinds.libraries:UUID4",
    "ulid": "snowredis.kinds.libraries:ULID",
    "objectid": "snowredis.kinds.libraries:OBJECTID",
}


def kind_names() -> list[str]:
    """Return the names of all kinds: ours, then those of other installed packages."""
    return [*OUR_KINDS, *sorted({point.name for point in _entry_points()} - OUR_KINDS.keys())]


def find_kind(name: str) -> IdKind:
    """Return the kind *name*. Raises ConfigError if there is none, or if it cannot be loaded."""
    if name in OUR_KINDS:
        module, _, attribute = OUR_KINDS[name].partition(":")
        ours: IdKind = getattr(importlib.import_module(module), attribute)
        return ours
    # one of several with the same name: all packages that declare it are the user's
    for point in _entry_points().select(name=name):
        try:
            kind = point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"the kind {name!r}, entry point {point.value!r}, cannot be loaded: {error}. Reinstall the package "
                "that declares it."
            ) from error
        if not isinstance(kind, IdKind):
            raise ConfigError(
                f"the entry point {point.value!r} of the kind {name!r} is no snowredis.kinds.base.IdKind but a "
                f"{type(kind).__name__}. Correct the package that declares it."
            )
        return kind
    known = kind_names()
    raise ConfigError(
        f"unknown kind of ids {name!r}. {did_you_mean(name, known)}The kinds are: "
        f"{', '.join(known)}. More come with packages that declare an entry point in the group {GROUP!r}."
    )


def _entry_points() -> EntryPoints:
    # importing it takes 20 ms
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


# KIND+SCHEME://…, or KIND: and perhaps a query for kinds without a server
_KIND_AND_SERVER = re.compile(r"([A-Za-z0-9_.-]+)\+([a-z][a-z0-9+.-]*://.*)", re.DOTALL)
_KIND_ALONE = re.compile(r"([A-Za-z0-9_.-]+):(?:\?(.*))?", re.DOTALL)


class KindAndSettings(NamedTuple):
    """A kind of ids, and the settings of one generator of it."""

    kind: IdKind
    settings: dict[str, Any]

    def open(self) -> IdGenerator[Any]:
        """Return a generator. Raises ConfigError, and what the kind raises."""
        return self.kind.generator(self.settings)

    def describe(self) -> IdDescription:
        """Return the description of its ids."""
        return self.kind.describe(self.settings)


@overload
def generator(kind: Literal["snowflake"], /, **settings: Unpack[AllSettings]) -> SnowflakeGenerator: ...


@overload
def generator(kind: Literal["segment"], /, **settings: Any) -> IdGenerator[int]: ...


@overload
def generator(kind: Literal["dated"], /, **settings: Any) -> IdGenerator[str]: ...


@overload
def generator(kind: Literal["uuid7", "uuid4"], /, *, form: Literal["uuid"] = "uuid") -> IdGenerator[UUID]: ...


@overload
def generator(kind: Literal["ulid"], /, *, form: Literal["uuid"]) -> IdGenerator[UUID]: ...


@overload
def generator(kind: Literal["uuid7", "uuid4"], /, *, form: Literal["text"]) -> IdGenerator[str]: ...


@overload
def generator(kind: Literal["ulid", "objectid"], /, *, form: Literal["text"] = "text") -> IdGenerator[str]: ...


@overload
def generator(
    kind: Literal["uuid7", "uuid4", "ulid", "objectid"], /, *, form: Literal["bytes"]
) -> IdGenerator[bytes]: ...


@overload
def generator(kind: str | None = None, /, **settings: Any) -> IdGenerator[Any]: ...


def generator(kind: str | None = None, /, **settings: Any) -> IdGenerator[Any]:
    """Return a generator of ids of any kind. Which kinds and settings there are: see the settings in the reference.

    Args:
        kind: name of a kind: "snowflake", "segment", "dated", "uuid7", "uuid4", "ulid", "objectid", or one
            that another package declares; or a URL with a kind and settings, such as
            "snowflake+redis://localhost:6379/0?pool=orders". By default, the variable SNOWREDIS_KIND, which is
            "snowflake" if it is not set, and SNOWREDIS_* variables for settings that are not given here. If another
            kind than Snowflakes is given, only SNOWREDIS_URL is read.
        settings: of the kind; they precede those of a URL.

    Raises:
        ConfigError: an unknown kind or setting, a value that cannot work, or a library that is not installed.
        As the kind does: connect(), for "snowflake".
    """
    return resolve(kind, settings, os.environ if kind is None else {}).open()


def resolve(kind: str | None, settings: Mapping[str, Any], environment: Mapping[str, str]) -> KindAndSettings:
    """Return a kind and its checked settings: those of *settings*, of the URL in *kind*, and of *environment*.

    Connects to nothing. Raises ConfigError.
    """
    of_environment = environment.get(KIND.variable) or KIND.default
    found, in_url = parse_kind(of_environment if kind is None else kind)
    given = from_environment(environment, found.settings.values(), in_url | dict(settings))
    return KindAndSettings(found, found.check(given))


def parse_kind(text: str) -> KindAndSettings:
    """Return the kind that *text* names, a name or a URL, and the settings in the URL. Raises ConfigError."""
    if not isinstance(text, str):
        raise ConfigError(f"a kind of ids is a str, not a {type(text).__name__}. Pass settings by name: url=…, pool=…")
    if with_server := _KIND_AND_SERVER.fullmatch(text):
        kind = find_kind(with_server[1])
        if "url" not in kind.settings:
            raise ConfigError(f"{kind.name} generators need no server. Write {kind.name!r}, or '{kind.name}:?…'.")
        urls: list[str] = []
        settings: dict[str, Any] = {}
        for url in with_server[2].split():
            rest, found = _take_settings(url, kind)
            urls.append(rest)
            settings |= found
        return KindAndSettings(kind, {"url": " ".join(urls), **settings})
    if alone := _KIND_ALONE.fullmatch(text):
        kind = find_kind(alone[1])
        pairs = parse_qsl(alone[2] or "", keep_blank_values=True)
        kind.check({name: None for name, _ in pairs if name not in kind.settings})
        return KindAndSettings(kind, _read(pairs, kind))
    if "://" in text:
        scheme = text.partition("://")[0]
        raise ConfigError(
            f"this URL names no kind of ids. Pass it as url=…, or write snowflake+{scheme}://…?pool=orders"
        )
    return KindAndSettings(find_kind(text), {})


def _take_settings(url: str, kind: IdKind) -> tuple[str, dict[str, Any]]:
    """Return *url* without the settings of *kind* in its query, and these."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = [pair for pair in pairs if pair[0] in kind.settings and pair[0] != "url"]
    mistyped = {name: None for name, _ in pairs if _looks_like_a_setting(name, kind)}
    kind.check(mistyped)
    if not ours:
        return url, {}
    others = urlencode([pair for pair in pairs if pair not in ours])
    head, _, _ = url.partition("?")
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return head + (f"?{others}" if others else "") + fragment, _read(ours, kind)


def _looks_like_a_setting(name: str, kind: IdKind) -> bool:
    # no option of redis-py is as near to a setting; a test compares
    return name not in kind.settings and nearest(name, kind.settings, cutoff=0.8) is not None


def _read(pairs: list[tuple[str, str]], kind: IdKind) -> dict[str, Any]:
    return {name: kind.settings[name].read(value, name) for name, value in pairs}
