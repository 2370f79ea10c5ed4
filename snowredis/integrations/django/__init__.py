"""Django, 4.2 and later: ``INSTALLED_APPS = [..., "snowredis.integrations.django"]``, and what models and URLs need.

    SNOWREDIS = {"url": "redis://localhost:6379/0", "pool": "shop"}     # in settings: arguments of snowredis.connect()

    from snowredis.integrations.django import SnowflakeField            # in models.py

    class Order(models.Model):
        id = SnowflakeField(primary_key=True)

Loaded by Django before there are models, so it imports nothing of Django's by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowredis.integrations.django.converters import SnowflakeConverter
    from snowredis.integrations.django.fields import SnowflakeField, SnowflakeFormField

# public name -> the module it lives in; loaded at the first use
_HOMES = {"SnowflakeConverter": "converters", "SnowflakeField": "fields", "SnowflakeFormField": "fields"}

__all__ = ["SnowflakeConverter", "SnowflakeField", "SnowflakeFormField"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
