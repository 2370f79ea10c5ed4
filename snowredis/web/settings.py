"""What SNOWREDIS_SERVE_* variables say. connect()'s own SNOWREDIS_* variables are heard, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowredis.connection import settings_from
from snowredis.errors import ConfigError
from snowredis.web import PREFIX
from snowredis.web.limits import Limits
from snowredis.web.security import check_token


def settings_from_environment(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """The URL and the options of create_app().

    SNOWREDIS_SERVE_POOLS, _HOSTS: names with blanks in between. _TOKEN, or _TOKEN_FILE: a file with it.
    _INSECURE: 1. _MAX_COUNT, and every other limit of Limits by its name.

    Raises:
        ConfigError: a variable that is unknown, or has no such value.
    """
    mine = {name.removeprefix(PREFIX): text for name, text in environment.items() if name.startswith(PREFIX)}
    url, options = settings_from(environment)
    names = mine.pop("POOLS", "").split() or [options.get("pool", "default")]
    options.pop("pool", None)
    token, token_file = mine.pop("TOKEN", None), mine.pop("TOKEN_FILE", None)
    if token_file:
        token = read_token(token_file)
    insecure = mine.pop("INSECURE", "").lower()
    if insecure not in ("", "0", "1", "false", "true"):
        raise ConfigError(f"{PREFIX}INSECURE={insecure!r} is neither 0 nor 1")
    return url, options | {
        "pools": names,
        "token": token,
        "hosts": mine.pop("HOSTS", "").split(),
        "insecure": insecure in ("1", "true"),
        "limits": _limits_from(mine),
    }


def read_token(path: str) -> str:
    """The token in a file. Raises ConfigError."""
    try:
        token = check_token(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ConfigError(
            f"the token cannot be read from {path}: {error.strerror}; the service was not started"
        ) from error
    if token is None:
        raise ConfigError(f"there is no token in {path}; the service was not started")
    return token


def _limits_from(texts: Mapping[str, str]) -> Limits:
    kinds = {name.upper(): name for name in Limits.__dataclass_fields__}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in kinds:
            known = ", ".join([*("POOLS", "TOKEN", "TOKEN_FILE", "HOSTS", "INSECURE"), *kinds])
            raise ConfigError(f"{PREFIX}{name} is no setting; these are, after {PREFIX}: {known}")
        try:
            values[kinds[name]] = float(text) if name == "WAIT_S" else int(text)
        except ValueError:
            raise ConfigError(f"{PREFIX}{name}={text!r} is no number") from None
    return Limits(**values)
