"""Django integration (4.2 and later): an app for INSTALLED_APPS, a model field and a path converter.

    INSTALLED_APPS = [..., "snowredis.integrations.django"]             # in settings

    SNOWREDIS = {"url": "redis://localhost:6379/0", "pool": "shop"}     # arguments of snowredis.connect()

    from snowredis.integrations.django import SnowflakeField            # in models.py

    class Order(models.Model):
        id = SnowflakeField(primary_key=True)

Django loads this module before it loads models, so it imports nothing from Django.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowredis.integrations.django.converters import SnowflakeConverter
    from snowredis.integrations.django.fields import (
        GeneratedCharField,
        GeneratedUUIDField,
        SnowflakeAutoField,
        SnowflakeField,
        SnowflakeFormField,
    )

# public name -> its module; loaded at the first use
_MODULES = {
    "GeneratedCharField": "fields",
    "GeneratedUUIDField": "fields",
    "SnowflakeAutoField": "fields",
    "SnowflakeConverter": "converters",
    "SnowflakeField": "fields",
    "SnowflakeFormField": "fields",
}

__all__ = [
    "GeneratedCharField",
    "GeneratedUUIDField",
    "SnowflakeAutoField",
    "SnowflakeConverter",
    "SnowflakeField",
    "SnowflakeFormField",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
