"""System checks. Those of `manage.py check` look at settings only; `check --deploy` also asks Redis.

E001 a setting that cannot work            W001 the layout ends within a year
E002 a pool in memory outside of DEBUG     W002 embedded:// outside of DEBUG
E003 a pool of other settings              W003 a Redis of this machine only
E004 Redis does not answer                 W004 cache.clear() would empty the pool's database
E010 a field's generator                   W005 there is no such pool yet
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core import checks, mail

from snowredis.connection import END_WARNING_MS, connect
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, LayoutMismatch, PoolNotFound, SnowredisError
from snowredis.integrations.django.settings import effective_settings
from snowredis.lease.model import PoolConfig
from snowredis.lease.open import is_embedded, is_in_memory

_LOCAL = ("localhost", "127.0.0.1", "::1")


def check_settings(**_: Any) -> list[Any]:
    """Connects to nothing."""
    try:
        given = effective_settings()
        _config(given)
    except SnowredisError as error:
        return [_error(1, str(error), "Correct SNOWREDIS in your settings, or the SNOWREDIS_* variables.")]
    found = []
    layout = resolve_layout(given.get("layout"))
    if layout.end_ms - time.time() * 1000 < END_WARNING_MS:
        hint = "Plan to move to another layout: new ids in a new pool, with a layout whose ids are greater."
        found.append(_warning(1, f"the layout's timestamp bits last only until {layout.end}", hint))
    # a test runner sets DEBUG to False, and makes this
    if settings.DEBUG or hasattr(mail, "outbox"):
        return found
    for url in _urls(given):
        if is_in_memory(url):
            what = "SNOWREDIS['url'] is a pool in memory: every process numbers itself, and ids are repeated"
            found.append(_error(2, what, "Name a Redis that all processes share: redis://host:6379/0."))
        elif is_embedded(url):
            what = f"SNOWREDIS['url'] is {url}: two machines with a Redis each of their own repeat ids"
            found.append(_warning(2, what, "Name a Redis that all machines share: redis://host:6379/0."))
    return found


def check_deployment(**_: Any) -> list[Any]:
    """What may be right, and often is not. Connects to nothing."""
    with contextlib.suppress(SnowredisError):
        places = [_place(url) for url in _urls(effective_settings())]
        found = [
            _warning(
                3,
                f"Redis is at {host}: two machines with a Redis each of their own repeat ids",
                "With one machine only, or a proxy there, silence snowredis.W003; else name a Redis that all share.",
            )
            for host, _port, _db in filter(None, places)
            if host in _LOCAL or host.startswith("/")
        ]
        for alias, cache in settings.CACHES.items():
            where = cache.get("LOCATION") or []
            where = where.split(",") if isinstance(where, str) else where
            if "redis" in cache.get("BACKEND", "").lower() and {*map(_place, where)} & {
                *filter(None, places)
            }:
                found.append(
                    _warning(
                        4,
                        f"the cache {alias!r} is in the same Redis database as the pool: cache.clear() empties it, "
                        "and new workers wait for their floor then",
                        "Give the cache another database number.",
                    )
                )
        return found
    return []


def check_redis(**_: Any) -> list[Any]:
    """Asks every server of the pool. Blocks for a second or so for each that does not answer."""
    found = []
    try:
        given = effective_settings()
        config = _config(given)
    except SnowredisError:
        return []  # E001
    urls = _urls(given)
    missing = 0
    for index, url in enumerate(urls):
        if is_in_memory(url) or is_embedded(url):
            continue  # E002, W002; a check starts no server
        from snowredis import WorkerPool

        try:
            with contextlib.closing(WorkerPool(url, config.name)) as pool:
                stored = pool.info().signature
        except PoolNotFound:
            missing += 1
            continue
        except SnowredisError as error:
            found.append(_error(4, str(error), "Without Redis no process gets a worker id."))
            continue
        wanted = replace(config, share=(index, len(urls))).signature
        if stored != wanted:
            hint = "Other processes make ids with the pool's settings: correct SNOWREDIS."
            found.append(_error(3, str(LayoutMismatch(config.name, stored, wanted)), hint))
    if missing:
        what = f"there is no pool {config.name!r} yet: the first worker waits {config.floor_ms / 1000:g} s"
        found.append(_warning(5, what, f"If it is really new, run once: snowredis pool create {config.name}"))
    return found


def _config(given: dict[str, Any]) -> PoolConfig:
    """Return the pool's constants as connect() would make them. Starts no embedded Redis."""
    for url in _urls(given):
        if not (isinstance(url, str) or is_in_memory(url) or hasattr(url, "evalsha")):
            # such as of a variable that is not set
            raise ConfigError(f"{url!r} is not a URL, a redis-py client or a pool of snowredis.testing")
    offline = given
    if not given.get("min_replicas"):
        urls = [
            f"redis://offline-{index}" if is_in_memory(url) or is_embedded(url) else url
            for index, url in enumerate(_urls(given))
        ]
        offline = {**given, "url": urls if isinstance(given["url"], list | tuple) else urls[0]}
    with connect(**offline) as generator:
        return generator._config


def _urls(given: dict[str, Any]) -> list[Any]:
    url = given["url"]
    return list(url) if isinstance(url, list | tuple) else [url]


def _place(url: Any) -> tuple[str, int, int] | None:
    """Host or socket, port and database of a plain Redis URL; None for anything else."""
    if not isinstance(url, str) or not url.startswith(("redis://", "rediss://", "unix://")):
        return None
    from redis import connection

    parse_url: Any = connection.parse_url
    try:
        found = parse_url(url)
    except ValueError:
        return None
    return found.get("path") or found.get("host", "localhost"), found.get("port", 6379), found.get("db", 0)


def _error(number: int, what: str, hint: str) -> Any:
    return checks.Error(what, hint=hint, id=f"snowredis.E{number:03}")


def _warning(number: int, what: str, hint: str) -> Any:
    return checks.Warning(what, hint=hint, id=f"snowredis.W{number:03}")
