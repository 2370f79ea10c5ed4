"""The one JSON of snowredis: convert dataclasses to plain values. Pure.

Commands, service and reports show the same objects with the same names. A dataclass needs no code of its own: its type
hints say how a field is shown. scripts/_docs/schema.py describes them for the pages.

- A time, declared as TimeMs, is ISO 8601 text in UTC: `claimed_ms` becomes `claimed_at`, `reserved_until_ms` becomes
  `reserved_until`. A time that is 0, negative, or past the year 9999 is null.
- Every other field that ends in `_ms` is a duration, an int.
- An id, declared as IdNumber, is text: JavaScript loses digits past 2^53.
- A field declared as Hidden is left out: tokens and what could reveal them.
- A property decorated with in_json is shown like a field.

At the end is the record of an id taken apart, which commands and service show alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from snowredis.core.layout import Layout, Parts, layout_spec
from snowredis.core.text import FORMS, bits_of, encode
from snowredis.core.values import YEAR_10000_MS, time_text
from snowredis.errors import LayoutError

_Function = TypeVar("_Function", bound=Callable[..., Any])
# names of times that say by themselves that they are times
_TIME_NAME = re.compile(r"(?:.*_)?(?:from|until|since|at)", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """Form in which JSON shows a field.

    Attributes:
        kind: "value": as it is; "time": ms since 1970 as ISO 8601 text; "id": an int as text; "hidden": left out;
            "parts": some fields of a record, in place of the record.
        name: its name in JSON, or those of the parts, separated by spaces; empty: derived from the attribute, or all
            parts.
        null: a value that stands for "none" and is shown as null.
    """

    kind: Literal["value", "time", "id", "hidden", "parts"] = "value"
    name: str = ""
    null: int | str | None = None


TimeMs: TypeAlias = Annotated[int, Shown("time")]
# the time of a reading
NowMs: TypeAlias = Annotated[int, Shown("time", "at")]
IdNumber: TypeAlias = Annotated[int, Shown("id")]
Hidden: TypeAlias = Annotated[str, Shown("hidden")]
HiddenInt: TypeAlias = Annotated[int, Shown("hidden")]
# numbers that name something
_NAMES = ("pid", "worker", "value")
# fields of classes that this module imports
_HINTS: dict[type, dict[str, Any]] = {Parts: {"timestamp_ms": Annotated[int, Shown("time", "time")], "tick": IdNumber}}


def in_json(getter: _Function) -> _Function:
    """Mark the function of a property, so that JSON shows the property like a field."""
    getter.in_json = True  # type: ignore[attr-defined]  # a mark on the function itself
    return getter


def time_as_json(time_ms: int | None) -> str | None:
    """Return ms since 1970 as ISO 8601 in UTC; None if the time is unknown, 0, negative, or past the year 9999."""
    return time_text(time_ms) if time_ms and 0 < time_ms < YEAR_10000_MS else None


def to_json(value: Any) -> Any:
    """Return *value* in types that json.dumps() accepts.

    Dataclasses and named tuples become objects, a layout its spec, an enum its value, and a float that is not finite
    null. Of any other type the text is shown.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Layout):
        return layout_spec(value)
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if is_record(type(value)):
        kind: type = type(value)
        return {name: convert(get(value)) for name, get, convert in _plan(kind)}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return str(value)


# --- fields of records ------------------------------------------------------------------------------


class FieldOfJson(NamedTuple):
    """A field of a record as JSON calls it, and what shows how to print it.

    Attributes:
        name: in JSON.
        source: the attribute that it shows.
        hint: its type, with the mark of its form; kind: without that mark, and without None.
        shown: its form in JSON.
    """

    name: str
    source: str
    hint: Any
    kind: Any
    shown: Shown

    @property
    def is_time(self) -> bool:
        """True for ms since 1970."""
        return self.shown.kind == "time"

    @property
    def is_name(self) -> bool:
        """True for a number that names something, and counts nothing."""
        return self.shown.kind == "id" or self.name in _NAMES


def _field(source: str, hint: Any) -> FieldOfJson:
    bare, shown = split_hint(hint)
    kind = next(each for each in get_args(bare) or (bare,) if each is not NoneType)
    return FieldOfJson(_json_name(source, shown), source, hint, kind, shown)


@cache
def field_named(kind: type, name: str) -> FieldOfJson:
    """Return the field of records of type *kind* that JSON calls *name*; "a.b": the field b of the record a.

    Raises KeyError if there is no such field.
    """
    first, _, rest = name.partition(".")
    field = {field.name: field for field in fields_of(kind)}[first]
    if not rest:
        return field
    inner = field_named(field.kind, rest)
    return inner._replace(source=f"{field.source}.{inner.source}")


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))


@cache
def fields_of(kind: type) -> tuple[FieldOfJson, ...]:
    """Return the fields that JSON shows of a dataclass or a named tuple, then its marked properties."""
    return tuple(_find_fields(kind))


def _find_fields(kind: type) -> Iterator[FieldOfJson]:
    hints = get_type_hints(kind, include_extras=True) | _HINTS.get(kind, {})
    names = getattr(kind, "_fields", None) or [field.name for field in dataclasses.fields(kind)]
    for source in names:
        hint, shown = split_hint(hints[source])
        if shown.kind == "parts":
            parts = (part._replace(source=f"{source}.{part.source}") for part in fields_of(hint))
            yield from (part for part in parts if not shown.name or part.name in shown.name.split())
        elif shown.kind != "hidden":
            yield _field(source, hints[source])
    for source, member in inspect.getmembers_static(kind, lambda each: isinstance(each, property)):
        if getattr(member.fget, "in_json", False):
            yield _field(source, get_type_hints(member.fget, include_extras=True)["return"])


def _json_name(source: str, shown: Shown) -> str:
    if shown.name or shown.kind != "time":
        return shown.name or source
    name = source.removesuffix("_ms")
    return name if _TIME_NAME.fullmatch(name) else f"{name}_at"


# --- values -----------------------------------------------------------------------------------------


@cache
def _plan(kind: type) -> tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...]:
    """Return for each field of *kind* its name in JSON, and the functions that get and convert its value."""
    return tuple((field.name, attrgetter(field.source), _converter(field.hint)) for field in fields_of(kind))


def _converter(hint: Any) -> Callable[[Any], Any]:
    inner, shown = split_hint(hint)
    if shown.kind == "time":
        # a tuple of times has the mark on its items
        return time_as_json
    if shown.kind == "id":
        return lambda value: None if value is None else str(value)
    if shown.null is not None:
        return lambda value: None if value == shown.null else value
    if get_origin(inner) in (tuple, list) and split_hint(get_args(inner)[0])[1] != Shown():
        item = _converter(get_args(inner)[0])
        return lambda values: [item(value) for value in values]
    return to_json


def split_hint(hint: Any) -> tuple[Any, Shown]:
    """Return *hint* without its mark, and the mark; of `TimeMs | None` the mark of the time."""
    if get_origin(hint) is Annotated:
        shown = next((mark for mark in hint.__metadata__ if isinstance(mark, Shown)), Shown())
        return hint.__origin__, shown
    if get_origin(hint) in (Union, UnionType):
        parts = [split_hint(part) for part in get_args(hint)]
        shown = next((shown for _, shown in parts if shown != Shown()), Shown())
        return Union[tuple(part for part, _ in parts)], shown  # noqa: UP007  # made from a list of types
    return hint, Shown()


# --- an id taken apart ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedId:
    """Fields of an id, as numbers and as text.

    Attributes:
        id: the id.
        form: the text form that it was read as.
        parts: its fields.
        datacenter_fields: values of the named parts of the datacenter bits.
        bits: the binary digits of each field that has bits, from the highest.
        forms: its text forms by name.
        layout: the layout that it was read with.
    """

    id: IdNumber
    form: str
    parts: Annotated[Parts, Shown("parts", "time datacenter backup worker sequence tick gene")]
    datacenter_fields: dict[str, int]
    bits: dict[str, str]
    forms: dict[str, str]
    layout: Layout


def decoded(layout: Layout, an_id: int, form: str) -> DecodedId:
    """Return what *an_id*, read in *form*, contains. Raises InvalidId."""
    parts = layout.decode(an_id)
    forms: dict[str, str] = {}
    for name in FORMS:
        # a time past the year 9999 has no friendly form
        with contextlib.suppress(LayoutError):
            forms[name] = encode(an_id, name, layout=layout)
    return DecodedId(an_id, form, parts, parts.fields, bits_of(layout, an_id), forms, layout)
