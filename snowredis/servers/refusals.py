"""Errors of URLs and clients that cannot be used: they are refused before anything connects.

Loaded where something is refused, or where it is no URL. No error shows a password.
"""

from __future__ import annotations

import inspect
import os
import re
from typing import Any
from urllib.parse import parse_qsl

import redis
from redis import sentinel

from snowredis.errors import ConfigError, nearest
from snowredis.settings import SETTINGS


def no_unix_sockets(url: str) -> ConfigError:
    """Return the error for a unix:// URL on a system without such sockets."""
    return ConfigError(
        f"{redacted(url)!r} names a unix socket, which Python does not have on this system: nothing was connected. "
        "Use redis://host:6379/0."
    )


def unusable_url(url: str, reason: str, *, is_ours: bool = False) -> ConfigError:
    """Return the error for a *url* that redis-py refused for a *reason*, or snowredis."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", reason)
    # a password ends before the last "@"
    if unknown and re.search(rf"[?&]{unknown[1]}=", url.rpartition("@")[2]):
        return ConfigError(_unknown_option(unknown[1]))
    # a "/" or "#" in a password moves the rest of it into the error's text: neither that nor the error is shown
    reason = reason if is_ours or redacted(url) == url else "it cannot be parsed"
    return ConfigError(
        f"{redacted(url)!r} is not a Redis URL: {reason.rstrip('.')}. Write redis://host:6379/0, rediss://…, "
        "unix:///path/to.sock, embedded://, sentinel://host:26379,host:26379/MASTER/0 or "
        "cluster://host:7000,host:7001, and special characters of a password as %2F, %23, %40."
    )


def check_certificates(url: str) -> None:
    """Raise ConfigError for a file of certificates or keys in the query of *url* that is not there."""
    for name, path in parse_qsl(url.rpartition("?")[2]):
        if name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile") and not os.path.exists(path):
            raise ConfigError(f"{name}={path} in the URL: there is no such file. Nothing was connected. Correct it.")


def check_limits(client: Any) -> None:
    """Raise ConfigError for an application's client, used as it is, that waits for a reply without a limit."""
    if not isinstance(client, redis.Redis):
        return
    pool = client.connection_pool
    # its default depends on the version of redis-py. This connects to nothing
    if pool.connection_class(**pool.connection_kwargs).socket_timeout is None:
        raise ConfigError(
            f"url cannot be a client of class {type(client).__name__} without socket_timeout: a client of your own "
            "class is used as it is, so each call, and close(), would wait for ever for a Redis that hangs. Nothing "
            "was connected. Give it socket_timeout=1 and socket_connect_timeout=1, or pass a redis.Redis."
        )


def _unknown_option(name: str) -> str:
    """Return the error's text for *name* in the query of a URL."""
    options = inspect.signature(redis.Redis).parameters
    near = nearest(name, options, cutoff=0.8) or nearest(name, SETTINGS)
    hint = f"Did you mean {near!r}? " if near and near != name else ""
    if near in SETTINGS:
        hint += f"{near!r} is a setting: pass {near}=… beside the URL. "
    return (
        f"unknown option {name!r} in the URL. {hint}Options in a URL are those of redis-py, such as socket_timeout "
        "and client_name."
    )


def redacted(url: str) -> str:
    """Return *url* without its password."""
    url = re.sub(r"(?<=[?&_]password=)[^&#]*", "***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.partition("//")
    if not at or (slashes and ":" not in credentials):
        return url
    if not slashes:
        return f"***@{tail}"
    return f"{scheme}{slashes}{credentials.partition(':')[0]}:***@{tail}"


def check_kind(server: Any) -> None:
    """Raise ConfigError unless *server* can run commands and wait for their replies."""
    kinds = type(server).__mro__
    wrong = ""
    if any(kind.__module__.startswith("redis.asyncio") for kind in kinds):
        wrong = (
            "a client of redis.asyncio, whose commands have to be awaited. Pass its URL, or a redis.Redis; "
            "snowredis.aconnect() does not block the event loop with them"
        )
    elif isinstance(server, redis.client.Pipeline | redis.cluster.ClusterPipeline):
        wrong = "a pipeline, whose commands run later. Pass the client itself"
    elif isinstance(server, sentinel.Sentinel):
        wrong = "a client of the Sentinels only. Pass its master_for(NAME), or the URL sentinel://HOSTS/NAME/0"
    elif isinstance(server, str | list | tuple):
        wrong = "a list of servers. Name one: a Redis, or a Sentinel or Cluster that fails over"
    elif isinstance(server, type) or not callable(getattr(server, "evalsha", None)):
        # its text may have a password
        kind = type(server).__name__
        wrong = f"of class {kind}. Pass the URL of a Redis, such as redis://localhost:6379/0, or a redis.Redis"
    if wrong:
        raise ConfigError(f"url cannot be {wrong}.")
