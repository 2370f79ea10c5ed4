"""Django integration (5.2 and later): an app for INSTALLED_APPS, a model field and a path converter.

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
    from snowredis.integrations.django.fields import (
        GeneratedCharField,
        GeneratedUUIDField,
        SnowflakeAutoField,
        SnowflakeConverter,
        SnowflakeField,
        SnowflakeFormField,
    )

__all__ = [
    "GeneratedCharField",
    "GeneratedUUIDField",
    "SnowflakeAutoField",
    "SnowflakeConverter",
    "SnowflakeField",
    "SnowflakeFormField",
]


def __getattr__(name: str) -> Any:
    # at the first use: fields need Django's models
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from snowredis.integrations.django import fields

    return getattr(fields, name)
