"""settings.SNOWREDIS: arguments of snowredis.connect()."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from snowredis.settings import DEFAULT_URL, from_environment


def django_settings() -> dict[str, Any]:
    """settings.SNOWREDIS with names in lower case. Raises ImproperlyConfigured if it is no dict, or names one twice."""
    given = getattr(settings, "SNOWREDIS", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(
            f"SNOWREDIS is a {type(given).__name__}. Write a dict of arguments of snowredis.connect(), such as "
            '{"url": "redis://localhost:6379/0", "pool": "shop"}.'
        )
    lower = {str(name).lower(): value for name, value in given.items()}
    if len(lower) < len(given):
        raise ImproperlyConfigured(f"SNOWREDIS has a name twice: {', '.join(map(str, given))}. Remove one.")
    return lower


def effective_settings() -> dict[str, Any]:
    """What the process' own generator is made of: SNOWREDIS_* variables, and settings.SNOWREDIS before them."""
    return {"url": DEFAULT_URL, **from_environment(os.environ), **django_settings()}
