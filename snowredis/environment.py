"""SNOWREDIS_* variables: read for whatever is not given, the same ones everywhere, and set for processes that start."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from snowredis.core.layout import Layout, layout_spec
from snowredis.settings import (
    KIND,
    OBJECT,
    PREFIX,
    SETTINGS,
    Setting,
    is_in_memory,
    nearest,
    required_pool,
    required_url,
)

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


# variable -> what hand_on() has set, and what was there before
_handed_on: dict[str, tuple[str, str | None]] = {}


def hand_on(settings: Mapping[str, Any], declared: Mapping[str, Setting], kind: str | None) -> None:
    """Set the variables of *settings* for the processes that this one starts, in place of those of the last call.

    A value that has no text, such as a client, is a variable that another process refuses.
    """
    for variable, (ours, before) in _handed_on.items():
        # somebody may have set it since
        if os.environ.get(variable) == ours:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before
    texts = {KIND.variable: kind} if kind else {}
    for name, value in settings.items():
        if value is not None:
            # no variable sets a clock: with one, another process could only make other ids
            texts[declared["url" if name == "clock" else name].variable] = _text_of(declared[name].kind.convert(value))
    _handed_on.clear()
    _handed_on.update({variable: (text, os.environ.get(variable)) for variable, text in texts.items()})
    os.environ.update(texts)


def _text_of(value: Any) -> str:
    """Return *value* as Setting.read() parses it; text that it refuses if there is none."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    if isinstance(value, Layout):
        return layout_spec(value)
    return str(value) if isinstance(value, str | int | float) else f"{OBJECT}{type(value).__name__}"


def inherited(variable: str) -> str | None:
    """Return the value of *variable* without what hand_on() has set."""
    return _handed_on[variable][1] if variable in _handed_on else os.environ.get(variable)


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
