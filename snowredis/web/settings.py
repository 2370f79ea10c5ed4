"""Settings and limits of the service: SNOWREDIS_SERVE_* variables, beside the SNOWREDIS_* variables of connect()."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from snowredis.core.values import MAX_BATCH
from snowredis.environment import from_environment, read_variables
from snowredis.errors import ConfigError
from snowredis.settings import BOOL, SETTINGS, TEXT, TIMEOUT, Kind, Setting, required_pool, required_url
from snowredis.web import PREFIX


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


_COUNT = Kind("a whole number above 0", int, _is_positive)
_SECONDS = Kind("seconds, more than 0", float, _is_positive)


def _limit(default: float, text: str, kind: Kind | None = None) -> Any:
    """Declare a limit with its text for people; *kind*: by default, a count or seconds above 0."""
    kind = kind or (_SECONDS if isinstance(default, float) else _COUNT)
    return field(default=default, metadata={"kind": kind, "help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one process; each process of a service has its own. A rate is also the largest burst."""

    max_count: int = _limit(10_000, "ids in one response")
    # only the login form has a body
    max_body_bytes: int = _limit(4_096, "size of a request's body")
    max_query_bytes: int = _limit(2_048, "size of a request's path and query")
    id_requests_per_s: int = _limit(50_000, "requests for ids in a second")
    # workers, pool, events, whois
    lookups_per_s: int = _limit(50, "requests for lookups in a second, and for metrics")
    wrong_tokens_per_s: int = _limit(10, "wrong tokens of one client in a second; above it, its right token gets 429")
    max_at_once: int = _limit(1_000, "concurrent requests, besides probes")
    max_viewers: int = _limit(100, "open dashboards")
    wait_s: float = _limit(2.0, "how long a request waits for an id before it gets 503")
    # while load balancers notice that it is not ready; 0: it stops at once
    drain_s: float = _limit(5.0, "how long it goes on serving after SIGTERM", TIMEOUT)
    # the following need `snowredis serve`, or its worker class for gunicorn
    # a connection that waits costs little memory; closing it would cost more, since most clients come back at once
    max_connections: int = _limit(10_000, "connections, besides probes")
    max_connections_per_address: int = _limit(6_000, "connections of one client address")
    request_timeout_s: float = _limit(10.0, "how long a client may take to send a request")
    response_timeout_s: float = _limit(30.0, "how long a client may take to read a response")
    # longer than proxies keep theirs, so that it is not the service that closes
    keep_alive_s: float = _limit(75.0, "how long a connection without requests stays open")

    def __post_init__(self) -> None:
        for limit in fields(self):
            _setting(limit).check(getattr(self, limit.name))
        if self.max_count > MAX_BATCH:
            raise ConfigError(f"max_count={self.max_count} is above the largest batch, {MAX_BATCH:,} ids")


def _setting(limit: Field[Any]) -> Setting:
    kind, text = limit.metadata["kind"], limit.metadata["help"]
    return Setting(limit.name, kind, limit.default, f"{limit.default:,}", text)


# 64 bits in hex, and longer than a word
MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")
_NAMES = Kind("names, separated by spaces", str.split, lambda value: isinstance(value, list))


# name -> declaration; each has a variable SNOWREDIS_SERVE_NAME
SERVICE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("pools", _NAMES, None, SETTINGS["pool"].variable, "names of the pools, separated by spaces"),
        Setting("token", TEXT, None, "none", "required from every client; 16 characters or more"),
        Setting("token_file", TEXT, None, "none", "file with the token"),
        Setting("hosts", _NAMES, [], "none", "names of the service besides localhost, separated by spaces"),
        Setting("trusted_proxies", _NAMES, [], "none", "addresses or networks whose X-Forwarded-* headers count"),
        Setting("create", BOOL, False, "off", "create pools that do not exist; their first worker waits"),
        Setting(
            "kinds",
            _NAMES,
            [],
            "none",
            "other kinds of ids, separated by spaces, for requests with `kind=` or `tag=`, such as `uuid7` and "
            "`segment:?tag=invoices`",
        ),
        Setting("insecure", BOOL, False, "off", "allow all clients, without a token"),
        *map(_setting, fields(Limits)),
    )
}


def settings_from_environment(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """Return the URL and the options of create_app(). Raises ConfigError for a variable that cannot be used."""
    options = from_environment(environment)
    given = read_variables(environment, PREFIX, SERVICE_SETTINGS.values())
    token_file = given.pop("token_file", "")
    limits = {limit.name: given.pop(limit.name) for limit in fields(Limits) if limit.name in given}
    url, pool = required_url(options.pop("url", None)), options.pop("pool", None)
    if token_file:
        given["token"] = read_token(token_file)
    return url, {
        **options,
        **given,
        "pools": given.get("pools") or [required_pool(pool, url)],
        "limits": Limits(**limits),
    }


def check_token(token: str | None) -> str | None:
    """Return the token without surrounding white space; None if it is empty. Raises ConfigError if it is too weak."""
    text = (token or "").strip()
    if not text:
        return None
    if len(text) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"the token must be {MIN_TOKEN_LENGTH} or more visible ASCII characters without spaces; the service was "
            "not started. Create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


def read_token(path: str) -> str:
    """Return the token in a file. Raises ConfigError."""
    try:
        token = check_token(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ConfigError(
            f"the token cannot be read from {path}: {error.strerror}; the service was not started"
        ) from error
    if token is None:
        raise ConfigError(f"there is no token in {path}; the service was not started")
    return token
