"""JSON integration: ints that JavaScript would round are written as strings.

JavaScript's numbers have 53 bits: it silently reads 249734652741287937 as 249734652741287940.
For json, Flask, and everything else that takes a json.JSONEncoder or a tree of dicts and lists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from snowredis.errors import ConfigError

if TYPE_CHECKING:
    from flask import Flask
    from flask.json.provider import DefaultJSONProvider

__all__ = ["MAX_SAFE_INTEGER", "SnowflakeEncoder", "dumps", "flask_provider", "stringify"]

# JavaScript's Number.MAX_SAFE_INTEGER: above it, two ints may be the same number
MAX_SAFE_INTEGER = 2**53 - 1


def stringify(value: Any, keys: Collection[str] = ()) -> Any:
    """Copy a tree of mappings, lists and tuples with every int beyond ±(2**53 - 1) as a string.

    Args:
        value: anything; values of other types, bools and floats among them, are returned unchanged.
        keys: keys of dicts whose ints, or lists of ints, become strings whatever their size, so that readers
            always get a string: ``keys={"id", "order_id"}``.

    Raises:
        ConfigError: *keys* is a single str.
        RecursionError: *value* contains itself.
    """
    if isinstance(keys, str):
        raise ConfigError(f"keys must be a collection of names, not the str {keys!r}. Write {{{keys!r}}}.")
    return _copy(value, keys, False)


def _copy(value: Any, keys: Collection[str], under_key: bool) -> Any:
    # this test comes first, since most values are str
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        if isinstance(value, bool) or not (under_key or abs(value) > MAX_SAFE_INTEGER):
            return value
        # IntEnum overrides str()
        return int.__repr__(value)
    if isinstance(value, Mapping):
        return {
            # keys are str in nearly all trees
            key if isinstance(key, str) else _copy(key, (), False): _copy(item, keys, key in keys)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [_copy(item, keys, under_key) for item in value]
        # a named tuple is a list to JSON
        return tuple(items) if type(value) is tuple else items
    return value


class SnowflakeEncoder(json.JSONEncoder):
    """json.JSONEncoder that applies stringify() to values, and to what ``default`` returns.

    Args:
        keys: as for stringify(); the other arguments are those of json.JSONEncoder.
    """

    def __init__(self, *, keys: Collection[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._keys = keys
        default = self.default
        self.default = lambda o: stringify(default(o), keys)  # type: ignore[method-assign]

    def iterencode(self, o: Any, _one_shot: bool = False) -> Iterator[str]:
        return super().iterencode(stringify(o, self._keys), _one_shot)


def dumps(value: Any, *, keys: Collection[str] = (), **options: Any) -> str:
    """Return *value* as JSON: json.dumps() with SnowflakeEncoder; *keys* as for stringify()."""
    return json.dumps(value, cls=SnowflakeEncoder, keys=keys, **options)


def flask_provider(app: Flask, keys: Collection[str] = ()) -> DefaultJSONProvider:
    """Return Flask's JSON provider, with ids as strings: ``app.json = flask_provider(app)``.

    Flask-RESTful and Flask-RESTX, which have their own JSON, get the same encoder.

    Args:
        keys: as for stringify().
    """
    from flask.json.provider import DefaultJSONProvider

    class Encoder(SnowflakeEncoder):
        def __init__(self, **options: Any) -> None:
            super().__init__(keys=keys, **options)

    # Flask-RESTful and Flask-RESTX write JSON by themselves
    for name in ("RESTFUL_JSON", "RESTX_JSON"):
        app.config[name] = {"cls": Encoder, **app.config.get(name, {})}

    class SnowflakeProvider(DefaultJSONProvider):
        def dumps(self, obj: Any, **kwargs: Any) -> str:
            return super().dumps(obj, **{"cls": Encoder} | kwargs)

    return SnowflakeProvider(app)
