"""The public names and their arguments, which stay as they are from release to release."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import snowredis
from snowredis import testing

GENERATOR = {
    "claim": "()",
    "next_id": "(*, gene)",
    "next_ids": "(count)",
    "fill": "(buffer)",
    "anext_id": "()",
    "anext_ids": "(count)",
    "aclaim": "()",
    "aclose": "()",
    "close": "()",
    "decode": "(an_id)",
    "suspend": "()",
    "resume": "()",
}
FUNCTIONS = {
    "connect": "(url, **settings)",
    "aconnect": "(url, **settings)",
    "configure": "(kind, **settings)",
    "next_id": "()",
    "next_ids": "(count)",
    "anext_id": "()",
    "anext_ids": "(count)",
    "preload": "()",
    "close": "()",
    "close_on_sigterm": "()",
    "decode": "(an_id, layout)",
    "encode": "(an_id, form, *, layout)",
    "generator": "(kind, **settings)",
    "parse": "(text, form, *, layout)",
    "Layout": "(*, timestamp_bits, datacenter_bits, backup_bits, worker_bits, sequence_bits, tick_ms, epoch_ms, "
    "worker_last, gene_bits, datacenter_fields)",
    "WorkerPool": "(url, name)",
}
LAYOUT = {
    "compose": "(*, tick, worker, sequence, datacenter, backup, gene)",
    "decode": "(an_id)",
    "id_range": "(start, end)",
    "describe": "()",
}
WORKER_POOL = {
    "workers": "(*, alive_only)",
    "info": "()",
    "events": "(*, newest, since)",
    "whois": "(an_id)",
    "create": "(config)",
    "delete": "(*, force)",
    "close": "()",
}
TESTING = {"ManualClock": "(start_ms)", "memory_pool": "(*, clock)", "use": "(generator)"}
EMBEDDED = {"start": "(directory)", "join": "(url)", "stop": "(directory)"}
PLAIN = {
    "IMPLEMENTATION",
    "SnowflakeGenerator",
    "IdGenerator",
    "Lease",
    "OwnLease",
    "Parts",
    "PoolInfo",
    "__version__",
    "layouts",
}
MODULES = {"embedded", "readers", "testing"}


def arguments_of(function: Any) -> str:
    """The arguments by name, such as "(url, *, pool)": no types, no defaults, no self."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters)).replace(", /", "")


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (snowredis, FUNCTIONS),
        (snowredis.SnowflakeGenerator, GENERATOR),
        (snowredis.Layout, LAYOUT),
        (snowredis.WorkerPool, WORKER_POOL),
        (testing, TESTING),
        (snowredis.embedded, EMBEDDED),
    ],
    ids=["snowredis", "SnowflakeGenerator", "Layout", "WorkerPool", "testing", "embedded"],
)
def test_functions_take_these_arguments(owner: Any, expected: dict[str, str]) -> None:
    assert {name: arguments_of(getattr(owner, name)) for name in expected} == expected


def test_every_public_name_is_listed_here_and_can_be_had() -> None:
    errors = {
        name
        for name, value in vars(snowredis.errors).items()
        if isinstance(value, type) and issubclass(value, snowredis.SnowredisError)
    }
    assert set(snowredis.__all__) == FUNCTIONS.keys() | PLAIN | MODULES | errors
    for name in snowredis.__all__:
        assert getattr(snowredis, name) is not None


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        ("ConfigError", "ValueError"),
        ("LayoutError", "ValueError"),
        ("InvalidId", "ValueError"),
        ("PoolNotFound", "SnowredisError"),
        ("LeaseLost", "LeaseExpired"),
    ],
)
def test_errors_are_kinds_of_these(error: str, parent: str) -> None:
    assert parent in [kind.__name__ for kind in getattr(snowredis, error).__mro__]


def test_the_help_of_the_package_begins_with_what_is_called() -> None:
    """pydoc shows classes before functions, so the docstring names the functions."""
    text = inspect.cleandoc(snowredis.__doc__ or "")
    assert {name for name in FUNCTIONS if name.islower() and f"{name}()" not in text} == set()
