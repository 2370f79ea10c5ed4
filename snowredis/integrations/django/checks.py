"""Settings of a project, and system checks. `manage.py check` looks at settings only; with `--deploy`, at Redis, too.

E001 a setting that cannot work            W001 the layout ends within a year
E002 a pool in memory outside of DEBUG     W002 embedded:// outside of DEBUG
E003 a pool with other settings            W003 a Redis on this machine only
E004 Redis does not answer                 W004 cache.clear() would empty the pool's database
E011 the kind of a field                   W005 the pool does not exist yet
E012 link tables of DEFAULT_AUTO_FIELD     W006 link tables may have keys of 32 bits
                                           W007 a generic key is too narrow for ids
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks, mail
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils.module_loading import import_string

from snowredis import process_generator
from snowredis.connection import END_WARNING_MS, connect
from snowredis.core.values import MAX_ID
from snowredis.errors import LayoutMismatch, PoolNotFound, SnowredisError
from snowredis.settings import KIND, is_embedded, is_in_memory, settings_of_process
from snowredis.snowflake.protocol.pool_config import PoolConfig

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
    return settings_of_process(process_generator.effective_settings())


def makes_snowflakes() -> bool:
    """Return whether the process' generator leases a worker id. Raises ConfigError."""
    kind, _ = process_generator.effective_kind()
    return bool(kind.name == KIND.default)


# --- checks ----------------------------------------------------------------------------------------

_NARROW = {f"{sign}{size}IntegerField" for sign in ("", "Positive") for size in ("", "Small")} | {
    f"{size}AutoField" for size in ("", "Small")
}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def check_settings(**_: Any) -> list[Any]:
    """Return messages about settings. Connects to nothing."""
    try:
        if not makes_snowflakes():
            return []
        given = effective_settings()
        layout = _pool_config(given).layout
    except SnowredisError as error:
        return [_error(1, str(error), "Correct SNOWREDIS in your settings, or the SNOWREDIS_* variables.")]
    messages = []
    if layout.end_ms - time.time() * 1000 < END_WARNING_MS:
        hint = "Plan to move to another layout: new ids in a new pool, with a layout whose ids are greater."
        messages.append(_warning(1, f"the layout's timestamp bits last only until {layout.end}", hint))
    # a test runner sets DEBUG to False, and makes mail.outbox
    if settings.DEBUG or hasattr(mail, "outbox"):
        return messages
    url = given["url"]
    if is_in_memory(url):
        text = "SNOWREDIS['url'] is a pool in memory: each process has a pool of its own, and ids are repeated"
        messages.append(_error(2, text, "Name a Redis that all processes share: redis://host:6379/0."))
    elif is_embedded(url):
        text = f"SNOWREDIS['url'] is {url}: two machines with a Redis each of their own repeat ids"
        messages.append(_warning(2, text, "Name a Redis that all machines share: redis://host:6379/0."))
    return messages


def check_link_tables(**_: Any) -> list[Any]:
    """Return messages about tables of ManyToManyFields whose key Django makes otherwise than it fills it.

    A migration makes them with DEFAULT_AUTO_FIELD, whatever the app says; a program uses the app's default_auto_field.
    """
    from snowredis.integrations.django.fields import SnowflakeAutoField

    default = import_string(settings.DEFAULT_AUTO_FIELD)
    links = [model for model in apps.get_models(include_auto_created=True) if model._meta.auto_created]
    filled = [link._meta.label for link in links if isinstance(link._meta.pk, SnowflakeAutoField)]
    others = [link._meta.label for link in links if link._meta.label not in filled]
    hint = (
        "Set DEFAULT_AUTO_FIELD to 'django.db.models.BigAutoField', and default_auto_field to SnowflakeAutoField in "
        "the AppConfig of each app that is to have such ids."
    )
    if issubclass(default, SnowflakeAutoField) and others:
        text = (
            f"DEFAULT_AUTO_FIELD is SnowflakeAutoField, but not for {', '.join(others)}: their apps name another "
            "field. A migration makes these link tables without a sequence, and Django inserts into them without ids: "
            "each insert fails, or on SQLite is ignored"
        )
        return [_error(12, text, hint)]
    if filled and issubclass(default, models.AutoField) and not issubclass(default, models.BigAutoField):
        text = (
            f"DEFAULT_AUTO_FIELD has 32 bits, and a migration makes the link tables {', '.join(filled)} with it; ids "
            "have 64"
        )
        return [_warning(6, text, f"{hint} Widen the keys of link tables that exist.")]
    return []


# digits of the largest id
_DIGITS = len(str(MAX_ID))


def check_generic_keys(**_: Any) -> list[Any]:
    """Return a warning for each generic key, such as those of taggit, whose column is too narrow for ids."""
    # the app is optional, and its module can be imported only with it
    if not apps.is_installed("django.contrib.contenttypes"):
        return []
    from django.contrib.contenttypes.fields import GenericForeignKey

    from snowredis.integrations.django.fields import SnowflakeField

    if not any(isinstance(model._meta.pk, SnowflakeField) for model in apps.get_models()):
        return []
    keys = {
        model._meta.get_field(key.fk_field)
        for model in apps.get_models(include_auto_created=True)
        for key in model._meta.private_fields
        if isinstance(key, GenericForeignKey)
    }
    hint = "Widen the column to 64 bits (BigIntegerField), or do not use it for models with such ids."
    return [
        _warning(7, f"{key.model._meta.label}.{key.name} is too narrow for ids of 64 bits", hint)
        for key in sorted(keys, key=str)
        if key.get_internal_type() in _NARROW or (key.max_length or _DIGITS) < _DIGITS
    ]


def check_deployment(**_: Any) -> list[Any]:
    """Return warnings about settings that are often wrong in production. Connects to nothing."""
    try:
        if not makes_snowflakes():
            return []
        of_pool = _database(effective_settings()["url"])
    except SnowredisError:
        return []  # E001
    messages = []
    if of_pool is not None and (of_pool[0] in _LOCAL_HOSTS or of_pool[0].startswith("/")):
        text = f"Redis is at {of_pool[0]}: two machines with a Redis each of their own repeat ids"
        hint = "With one machine only, or a proxy there, silence snowredis.W003; else name a Redis that all share."
        messages.append(_warning(3, text, hint))
    for alias, cache in settings.CACHES.items():
        locations = cache.get("LOCATION") or []
        locations = locations.split(",") if isinstance(locations, str) else locations
        is_redis = "redis" in cache.get("BACKEND", "").lower()
        if is_redis and of_pool is not None and of_pool in map(_database, locations):
            text = (
                f"the cache {alias!r} is in the same Redis database as the pool: cache.clear() empties it, and new "
                "workers wait for their floor then"
            )
            messages.append(_warning(4, text, "Give the cache another database number."))
    return messages


def check_redis(**_: Any) -> list[Any]:
    """Return messages about the pool in Redis. Blocks for about a second if it does not answer."""
    from snowredis import WorkerPool

    try:
        if not makes_snowflakes():
            return []
        given = effective_settings()
        config = _pool_config(given)
    except SnowredisError:
        return []  # E001
    url = given["url"]
    if is_in_memory(url) or is_embedded(url):
        return []  # E002, W002; a check starts no server
    try:
        with contextlib.closing(WorkerPool(url, config.name)) as pool:
            stored = pool.info().config
    except PoolNotFound:
        text = f"pool {config.name!r} does not exist yet: the first worker waits {config.floor_ms / 1000:g} s"
        return [_warning(5, text, f"If it is new, run once: snowredis pool create {config.name}")]
    except SnowredisError as error:
        return [_error(4, str(error), "Without Redis no process gets a worker id.")]
    if stored != config:
        hint = "Other processes make ids with the pool's settings: correct SNOWREDIS."
        return [_error(3, str(LayoutMismatch(config.name, stored.signature, config.signature)), hint)]
    return []


def _pool_config(given: dict[str, Any]) -> PoolConfig:
    """Return the pool's constants as connect() makes them; raises what it raises. Starts no embedded Redis."""
    url = given["url"]
    # with min_replicas, connect() refuses such servers before it starts one
    if not given.get("min_replicas") and (is_in_memory(url) or is_embedded(url)):
        url = "redis://offline"
    with contextlib.closing(connect(**{**given, "url": url})) as generator:
        return generator._config


def _database(url: Any) -> tuple[str, int, int] | None:
    """Return host or socket, port and database number of a plain Redis URL; None for everything else."""
    if not isinstance(url, str) or not url.startswith(("redis://", "rediss://", "unix://")):
        return None
    from redis import connection

    parse_url: Any = connection.parse_url
    try:
        parts = parse_url(url)
    except ValueError:
        return None
    return parts.get("path") or parts.get("host", "localhost"), parts.get("port", 6379), parts.get("db", 0)


def _error(number: int, text: str, hint: str) -> Any:
    return checks.Error(text, hint=hint, id=f"snowredis.E{number:03}")


def _warning(number: int, text: str, hint: str) -> Any:
    return checks.Warning(text, hint=hint, id=f"snowredis.W{number:03}")
