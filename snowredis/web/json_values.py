"""Values of the library as JSON: infos, events, decoded ids."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from typing import Any

from snowredis.core.layout import Layout, utc_text
from snowredis.core.presets import layout_spec
from snowredis.core.text import FORMS, encode
from snowredis.errors import LayoutError
from snowredis.monitor.snapshot import PoolInfo

# the largest int that JavaScript represents exactly
_MAX_SAFE_INTEGER = (1 << 53) - 1


def to_json(value: Any) -> bytes:
    """Return *value* as compact JSON; see jsonable().

    Lists of an object are encoded row by row: json.dumps() keeps all other threads waiting until it returns.
    """
    converted = jsonable(value)
    if not isinstance(converted, dict):
        return _dumps(converted).encode()
    members = (
        f"{_dumps(name)}:" + (f"[{','.join(map(_dumps, item))}]" if isinstance(item, list) else _dumps(item))
        for name, item in converted.items()
    )
    return f"{{{','.join(members)}}}".encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def jsonable(value: Any) -> Any:
    """Convert *value* for JSON: records by field, layouts as specs, ints that JavaScript cannot hold as strings.

    Fields with "token" in their name are left out, also hashes of tokens.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Layout):
        return layout_spec(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: jsonable(getattr(value, name)) for name in _public_fields(type(value))}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(name): jsonable(item) for name, item in value.items() if is_public(str(name))}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    return str(value)


@functools.cache
def _public_fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if is_public(field.name))


def is_public(name: str) -> bool:
    """Return true for a field that is shown: neither a token nor its hash."""
    return "token" not in name and name not in ("renewal_id", "signature")


def decoded_id(layout: Layout, an_id: int, form: str) -> dict[str, Any]:
    """Return the fields, bits and text forms of an id. Raises InvalidId."""
    parts = layout.decode(an_id)
    values = parts._asdict()
    bits_of = values | {"timestamp": parts.tick}
    fields = [
        {"name": name, "bits": f"{bits_of[name]:0{width}b}", "value": str(bits_of[name])}
        for name, width in layout.fields
        if width
    ]
    forms = {}
    for other in FORMS:
        # a time past the year 9999 has no friendly form
        with contextlib.suppress(LayoutError):
            forms[other] = encode(an_id, other, layout=layout)
    return {
        "id": str(an_id),
        "form": form,
        # null past the year 9999
        "time": utc_text(parts.timestamp_ms),
        **values,
        "tick": str(parts.tick),
        "fields": fields,
        "forms": forms,
        "layout": layout_spec(layout),
    }


def pool_state(info: PoolInfo) -> dict[str, Any]:
    """Return a pool's info with its layout as a spec and its settings by name."""
    settings = {name: value for name, value in info.settings.items() if name != "layout"}
    state: dict[str, Any] = jsonable(info)
    return state | {"settings": jsonable(settings), "layout_end_ms": jsonable(info.layout.end_ms)}
