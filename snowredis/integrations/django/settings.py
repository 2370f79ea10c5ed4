"""Read settings.SNOWREDIS: arguments of snowredis.connect(), and ``testing``, which needs no Redis."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from snowredis import process_generator
from snowredis.settings import KIND, SETTINGS

# settings about the server, which ``testing`` replaces
_OF_SERVER = ("url", "min_replicas")
# settings of a pool in memory -> the pool, which lasts as long as the process, so that it never repeats an id
_pools_in_memory: dict[str, Any] = {}


def django_settings() -> dict[str, Any]:
    """Return settings.SNOWREDIS with names in lower case; {} if there is none.

    With ``testing``, the url is a pool in the memory of this process, unless ``kind`` names another kind of ids.

    Raises:
        ImproperlyConfigured: it is not a dict, has the same name twice, or ``testing`` is not a bool.
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
    testing = lower.pop("testing", False)
    if not isinstance(testing, bool):
        raise ImproperlyConfigured(f"SNOWREDIS['testing'] must be True or False, not {testing!r}.")
    if testing and lower.get("kind") in (None, KIND.default):
        from snowredis.testing import memory_pool

        kept = {name: value for name, value in lower.items() if name not in _OF_SERVER}
        key = repr(sorted(kept.items(), key=repr))
        lower = {**kept, "url": _pools_in_memory.setdefault(key, memory_pool())}
    return lower


def effective_settings() -> dict[str, Any]:
    """Return the arguments of connect() that the process' generator is made of, url and pool always among them.

    Those of settings.SNOWREDIS, with which ready() configured it, precede SNOWREDIS_* variables. Raises ConfigError.
    """
    defaults = {name: SETTINGS[name].default for name in ("url", "pool")}
    return defaults | process_generator.effective_settings()


def makes_snowflakes() -> bool:
    """Return whether the process' generator leases a worker id. Raises ConfigError."""
    kind, _ = process_generator.effective_kind()
    return bool(kind.name == KIND.default)


def server_urls(given: dict[str, Any]) -> list[Any]:
    """Return the servers of *given* settings, one or several: URLs, clients or pools in memory."""
    url = given["url"]
    return list(url) if isinstance(url, list | tuple) else [url]
