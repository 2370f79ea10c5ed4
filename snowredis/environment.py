"""Settings that SNOWREDIS_* variables set: read for next_id(), commands and the HTTP service.

connect() reads no variable but those of the URL and of the pool, by itself: see url_or_default() of settings.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from snowredis.settings import KIND, PREFIX, SETTINGS, Setting, nearest

# variables that the C code, its build, the scripts and the HTTP service read
_OTHER_VARIABLES = tuple(
    f"{PREFIX}{name}" for name in ("PURE", "BUILD", "PYTHON", "CRASH_RECORDS", "SERVE_", "WORKER_ID", "FROM", "UNTIL")
)
# Kubernetes sets these in each pod for a Service whose name begins with "snowredis"
_OF_KUBERNETES = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def from_environment(environment: Mapping[str, str], declared: Iterable[Setting] = SETTINGS.values()) -> dict[str, Any]:
    """Return the values of *declared* settings that SNOWREDIS_* variables set; by default those of connect(), with url.

    Unknown variables are ignored, since other programs may set them; one that looks like a mistyped setting is logged
    as a warning. Settings that take no text, such as a test clock, have no variable.

    Raises:
        ConfigError: a value is not valid.
    """
    ours = {name: text for name, text in environment.items() if not name.startswith(_OTHER_VARIABLES)}
    ours.pop(KIND.variable, None)
    return read_variables(ours, PREFIX, (setting for setting in declared if setting.name != "clock"))


def read_variables(environment: Mapping[str, str], prefix: str, declared: Iterable[Setting]) -> dict[str, Any]:
    """Return the values of those *declared* settings that are set by variables with *prefix*.

    Warns of unknown variables as from_environment() does. Raises ConfigError for a value that is not valid.
    """
    settings = {f"{prefix}{setting.name.upper()}": setting for setting in declared}
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(prefix):
            continue
        setting = settings.get(variable)
        if setting is not None:
            values[setting.name] = setting.read(text, variable)
        elif not _OF_KUBERNETES.fullmatch(variable):
            _warn_if_mistyped(variable, tuple(settings))
    return values


@functools.cache  # one warning a process
def _warn_if_mistyped(variable: str, known: tuple[str, ...]) -> None:
    """Log a warning if *variable* looks like one of *known*, mistyped."""
    near = nearest(variable, known)
    if near:
        # loaded only for this: commands start faster without it
        import logging

        log = logging.getLogger("snowredis")
        log.warning("the variable %s is unknown, and ignored. Did you mean %s?", variable, near)
