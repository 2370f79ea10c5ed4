"""Settings of the HTTP service: SNOWREDIS_SERVE_* variables, beside the SNOWREDIS_* variables of connect()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from snowredis.errors import ConfigError
from snowredis.settings import (
    BOOL,
    DEFAULT_URL,
    SETTINGS,
    TEXT,
    Kind,
    Setting,
    from_environment,
    read_variables,
)
from snowredis.web import PREFIX
from snowredis.web.access import check_token
from snowredis.web.limits import Limits

_NAMES = Kind("names, separated by spaces", str.split, lambda value: isinstance(value, list))
_COUNT = Kind("a whole number above 0", int, lambda value: value > 0)
_SECONDS = Kind("seconds, more than 0", float, lambda value: value > 0)
_SECONDS_OR_0 = Kind("seconds, 0 or more", float, lambda value: value >= 0)


def _kind_of(name: str, default: object) -> Kind:
    if isinstance(default, float):
        return _SECONDS_OR_0 if name == "drain_s" else _SECONDS
    return _COUNT


# name -> declaration; each has a variable SNOWREDIS_SERVE_NAME
SERVICE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("pools", _NAMES, None, SETTINGS["pool"].variable, "names of the pools, separated by spaces"),
        Setting("token", TEXT, None, "none", "required from every client; 16 characters or more"),
        Setting("token_file", TEXT, None, "none", "file with the token"),
        Setting("hosts", _NAMES, [], "none", "names of the service besides localhost, separated by spaces"),
        Setting(
            "trusted_proxies", _NAMES, [], "none", "addresses or networks whose X-Forwarded-* headers count"
        ),
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
        *(
            Setting(
                limit.name,
                _kind_of(limit.name, limit.default),
                limit.default,
                f"{limit.default:,}",
                limit.metadata["help"],
            )
            for limit in fields(Limits)
        ),
    )
}


def settings_from_environment(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """Return the URL and the options of create_app(). Raises ConfigError for a variable that cannot be used."""
    options = from_environment(environment)
    given = read_variables(environment, PREFIX, SERVICE_SETTINGS.values())
    token_file = given.pop("token_file", "")
    limits = {limit.name: given.pop(limit.name) for limit in fields(Limits) if limit.name in given}
    pool = options.pop("pool", SETTINGS["pool"].default)
    return options.pop("url", DEFAULT_URL), options | {
        "pools": given.get("pools") or [pool],
        "token": read_token(token_file) if token_file else given.get("token"),
        "hosts": given.get("hosts", []),
        "trusted_proxies": given.get("trusted_proxies", []),
        "create": given.get("create", False),
        "kinds": given.get("kinds", []),
        "insecure": given.get("insecure", False),
        "limits": Limits(**limits),
    }


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
