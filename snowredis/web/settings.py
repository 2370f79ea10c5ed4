"""Settings of the service: SNOWREDIS_SERVE_* variables, beside the SNOWREDIS_* variables of connect()."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowredis.environment import from_environment, read_variables
from snowredis.errors import ConfigError
from snowredis.settings import BOOL, SETTINGS, TEXT, TIMEOUT, Kind, Setting, required_pool, required_url
from snowredis.web import PREFIX

_NAMES = Kind("names, separated by spaces", str.split, lambda value: isinstance(value, list))

# 64 bits in hex, and longer than a word
MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")

# name -> declaration; each has a variable SNOWREDIS_SERVE_NAME
SERVICE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("pools", _NAMES, None, SETTINGS["pool"].variable, "names of the pools, separated by spaces"),
        Setting("token", TEXT, None, "none", "required from every client; 16 characters or more"),
        Setting("token_file", TEXT, None, "none", "file with the token"),
        Setting("hosts", _NAMES, [], "none", "names of the service besides localhost, separated by spaces"),
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
        Setting("wait_s", TIMEOUT, 2.0, "2.0", "how long a request waits for an id before it gets 503"),
        # while load balancers notice that it is not ready; 0: it stops at once
        Setting("drain_s", TIMEOUT, 5.0, "5.0", "how long it goes on serving after SIGTERM"),
    )
}


def settings_from_environment(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """Return the URL and the options of create_app(). Raises ConfigError for a variable that cannot be used."""
    options = from_environment(environment)
    given = read_variables(environment, PREFIX, SERVICE_SETTINGS.values())
    token_file = given.pop("token_file", "")
    url, pool = required_url(options.pop("url", None)), options.pop("pool", None)
    if token_file:
        given["token"] = read_token(token_file)
    return url, {**options, **given, "pools": given.get("pools") or [required_pool(pool, url)]}


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
