"""Find a kind of ids by its name.

The kinds of this package are listed here, so that they are found without a look at what is installed. Those of other
packages are found by their entry points, whose objects are IdKind:

    [project.entry-points."snowredis.generators"]
    nanoid = "our_package.ids:NANOID"
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING

from snowredis.errors import ConfigError
from snowredis.generators.kind import IdKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "snowredis.generators"

# name -> module and attribute; pyproject.toml declares the same as entry points
OUR_KINDS = {
    "snowflake": "snowredis.generators.snowflake:SNOWFLAKE",
    "segment": "snowredis.segment.kind:SEGMENT",
    "ticket": "snowredis.segment.ticket:TICKET",
    "dated": "snowredis.dated.kind:DATED",
    "uuid7": "snowredis.generators.uuids:UUID7",
    "uuid4": "snowredis.generators.uuids:UUID4",
    "ulid": "snowredis.generators.ulids:ULID",
    "objectid": "snowredis.generators.objectids:OBJECTID",
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
                f"the entry point {point.value!r} of the kind {name!r} is no snowredis.generators.kind.IdKind but a "
                f"{type(kind).__name__}. Correct the package that declares it."
            )
        return kind
    known = kind_names()
    near = get_close_matches(name, known, n=1)
    raise ConfigError(
        f"unknown kind of ids {name!r}. {f'Did you mean {near[0]!r}? ' if near else ''}The kinds are: "
        f"{', '.join(known)}. More come with packages that declare an entry point in the group {GROUP!r}."
    )


def _entry_points() -> EntryPoints:
    # importing it takes 20 ms
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
