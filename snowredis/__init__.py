"""64-bit, time-ordered, never-repeated ids for a fleet of processes that agree through Redis.

    import snowredis

    ids = snowredis.connect("redis://localhost:6379/0", pool="orders")
    ids.next_id()

Make ids: connect() and aconnect() return a generator; next_id(), next_ids(), anext_id() and anext_ids() use the one of
the process, whose settings configure() sets and which close() closes. generator() makes other kinds of ids, and
worker_id() leases a number for a program that makes its own.

Read ids: decode(), encode() and parse(). Operate: WorkerPool shows a pool. Before a fork: preload(). At SIGTERM:
close_on_sigterm(). Errors are in snowredis.errors; help(snowredis.connect) has the settings.

The import connects to nothing, starts nothing and reads no environment variable; most modules are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snowredis import errors
from snowredis.errors import *  # noqa: F403 - a list of their names is in errors.__all__
from snowredis.process import VERSION

# takes the system's functions of time before a test replaces them, as freezegun does: loaded at the first id, it would
# keep those of the test for ever
from snowredis.process import clock as _clock  # noqa: F401

if TYPE_CHECKING:
    from snowredis import embedded, readers, testing
    from snowredis.connection import aconnect, connect
    from snowredis.core.layout import Layout, Parts
    from snowredis.core.presets import layouts
    from snowredis.core.text import decode, encode, parse
    from snowredis.kinds.base import IdGenerator
    from snowredis.kinds.lookup import generator
    from snowredis.lent_worker import worker_id
    from snowredis.monitor.snapshot import PoolInfo, WorkerInfo
    from snowredis.process.sigterm import close_on_sigterm
    from snowredis.process_generator import anext_id, anext_ids, close, configure, next_id, next_ids, preload
    from snowredis.snowflake.fast_path import IMPLEMENTATION
    from snowredis.snowflake.generator import SnowflakeGenerator
    from snowredis.snowflake.lease import Lease
    from snowredis.worker_pool import WorkerPool


__version__ = VERSION

# public name -> its module, which is loaded at the first use
_MODULE_OF = {
    "IMPLEMENTATION": "snowredis.snowflake.fast_path",
    "SnowflakeGenerator": "snowredis.snowflake.generator",
    "IdGenerator": "snowredis.kinds.base",
    "Layout": "snowredis.core.layout",
    "Lease": "snowredis.snowflake.lease",
    "Parts": "snowredis.core.layout",
    "PoolInfo": "snowredis.monitor.snapshot",
    "WorkerInfo": "snowredis.monitor.snapshot",
    "WorkerPool": "snowredis.worker_pool",
    "aconnect": "snowredis.connection",
    "anext_id": "snowredis.process_generator",
    "anext_ids": "snowredis.process_generator",
    "close": "snowredis.process_generator",
    "close_on_sigterm": "snowredis.process.sigterm",
    "configure": "snowredis.process_generator",
    "connect": "snowredis.connection",
    "decode": "snowredis.core.text",
    "encode": "snowredis.core.text",
    "generator": "snowredis.kinds.lookup",
    "layouts": "snowredis.core.presets",
    "next_id": "snowredis.process_generator",
    "next_ids": "snowredis.process_generator",
    "parse": "snowredis.core.text",
    "preload": "snowredis.process_generator",
    "worker_id": "snowredis.lent_worker",
}
_MODULES = ("embedded", "readers", "testing")

__all__ = [
    "IMPLEMENTATION",
    "IdGenerator",
    "Layout",
    "Lease",
    "Parts",
    "PoolInfo",
    "SnowflakeGenerator",
    "WorkerInfo",
    "WorkerPool",
    "__version__",
    "aconnect",
    "anext_id",
    "anext_ids",
    "close",
    "close_on_sigterm",
    "configure",
    "connect",
    "decode",
    "embedded",
    "encode",
    "generator",
    "layouts",
    "next_id",
    "next_ids",
    "parse",
    "preload",
    "readers",
    "testing",
    "worker_id",
]
__all__ += errors.__all__


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"snowredis.{name}")
    else:
        raise AttributeError(f"module 'snowredis' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
