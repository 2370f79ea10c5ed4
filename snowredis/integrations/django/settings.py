"""Read settings.SNOWREDIS: arguments of snowredis.connect()."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from snowredis import process_generator
from snowredis.settings import SETTINGS


def django_settings() -> dict[str, Any]:
    """Return settings.SNOWREDIS with names in lower case; {} if there is none.

    Raises:
        ImproperlyConfigured: it is not a dict, or has the same name twice.
    """
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
    """Return the arguments of connect() that the process' generator is made of, url and pool always among them.

    Those of settings.SNOWREDIS, with which ready() configured it, precede SNOWREDIS_* variables. Raises ConfigError.
    """
    defaults = {name: SETTINGS[name].default for name in ("url", "pool")}
    return defaults | process_generator.effective_settings()


def server_urls(given: dict[str, Any]) -> list[Any]:
    """Return the servers of *given* settings, one or several: URLs, clients or pools in memory."""
    url = given["url"]
    return list(url) if isinstance(url, list | tuple) else [url]
