"""SNOWREDIS_* variables: read for whatever is not given, the same ones everywhere."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from snowredis.errors import PREFIX, nearest
from snowredis.settings import KIND, SETTINGS, Setting, is_in_memory, required_pool, required_url

# variables that the C code, its build, the scripts and the HTTP service read
_OTHER_VARIABLES = tuple(
    f"{PREFIX}{name}" for name in ("PURE", "BUILD", "PYTHON", "CRASH_RECORDS", "SERVE_", "WORKER_ID", "FROM", "UNTIL")
)
# Kubernetes sets these in each pod for a Service whose name begins with "snowredis"
_OF_KUBERNETES = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def from_environment(
    environment: Mapping[str, str],
    declared: Iterable[Setting] = SETTINGS.values(),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return *given*, and what SNOWREDIS_* variables say of other *declared* settings; by default those of connect().

    Unknown variables are ignored, since other programs may set them; one that looks like a mistyped setting is logged
    as a warning. Settings that take no text, such as a test clock, have no variable.

    Raises:
        ConfigError: a value is not valid.
    """
    ours = {name: text for name, text in environment.items() if not name.startswith(_OTHER_VARIABLES)}
    for variable in (KIND.variable, *(f"{PREFIX}{name.upper()}" for name in given)):
        ours.pop(variable, None)
    return read_variables(ours, PREFIX, (setting for setting in declared if setting.name != "clock")) | dict(given)


def settings_of_process(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return *given* arguments of connect() with what variables say of the others, url and pool always among them.

    Raises ConfigError if no url or no pool is named, or a value is not valid.
    """
    # None is "not given"; a pool in memory has no server, and so no replicas
    used = {name: value for name, value in given.items() if value is not None}
    if is_in_memory(used.get("url")):
        used = {"min_replicas": 0} | used
    used = from_environment(os.environ, given=used)
    used["url"] = required_url(used.get("url"))
    return used | {"pool": required_pool(used.get("pool"), used["url"])}


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
        from snowredis.process.log import log

        log.warning("the variable %s is unknown, and ignored. Did you mean %s?", variable, near)
