"""Schema of a record as JSON shows it, from its type hints and the section *Attributes* of its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from snowredis.core.as_json import Shown, fields_of, is_record, split_hint
from snowredis.core.layout import Layout


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON schema (2020-12, as OpenAPI 3.1 uses it) of what to_json() makes of a value of type *hint*.

    All fields of a record are required; what can be missing is nullable. The descriptions are those of the docstring.
    """
    hint, shown = split_hint(hint)
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    schemas = [_schema(kind, shown) for kind in kinds if kind is not NoneType]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    nullable = NoneType in kinds or shown.kind == "time" or shown.null is not None
    if not nullable:
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _text_of(kind: type, source: str) -> str:
    """Return the meaning of an attribute of *kind*; "owner.host": of an attribute of a record in it."""
    first, _, rest = source.partition(".")
    if rest:
        return _text_of(split_hint(get_type_hints(kind, include_extras=True)[first])[0], rest)
    if isinstance(member := inspect.getattr_static(kind, source), property):
        return " ".join((inspect.getdoc(member) or "").partition("\n\n")[0].split())
    return _texts_of(kind).get(source, "")


def _texts_of(kind: type) -> dict[str, str]:
    """Return what the docstring of *kind* says about each attribute, by its name."""
    section = re.search(r"^Attributes:\n((?:(?: .*)?\n)*)", f"{inspect.getdoc(kind) or ''}\n", re.MULTILINE)
    texts = {}
    for entry in re.split(r"\n(?=    \w)", f"\n{section.group(1)}" if section else "")[1:]:
        names, _, text = entry.partition(":")
        for name in names.split(","):
            texts[name.strip()] = " ".join(text.split())
    return texts


_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema(kind: Any, shown: Shown) -> dict[str, Any]:
    """Return the schema of a type that is no union."""
    if shown.kind == "time":
        return {"type": "string", "format": "date-time"}
    if shown.kind == "id":
        return {"type": "string", "pattern": "^[0-9]{1,19}$"}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(arguments[0])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if isinstance(kind, type) and issubclass(kind, Layout):
        return {"type": "string", "description": "the layout as its spec"}
    return _record_schema(kind) if is_record(kind) else {}


def _record_schema(kind: type) -> dict[str, Any]:
    properties = {}
    for field in fields_of(kind):
        text = _text_of(kind, field.source)
        properties[field.name] = schema_of(field.hint) | ({"description": text} if text else {})
    return {"type": "object", "required": list(properties), "properties": properties}
