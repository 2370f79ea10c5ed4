"""64-bit, time-ordered, never-repeated ids for a fleet of processes that agree through Redis.

    import snowredis

    ids = snowredis.connect("redis://localhost:6379/0", pool="orders")
    ids.next_id()

Make ids: connect() and aconnect() return a generator; next_id(), next_ids(), anext_id() and anext_ids() use the one of
the process, whose settings configure() sets and which close() closes. generator() makes other kinds of ids.

Read ids: decode(), encode() and parse(). Operate: WorkerPool shows a pool. Before a fork: preload(). At SIGTERM:
close_on_sigterm(). Errors are in snowredis.errors; help(snowredis.connect) has the settings.

The import connects to nothing, starts nothing and reads no environment variable; most modules are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snowredis import errors
from snowredis.errors import *  # noqa: F403 - a list of their names is in errors.__all__
from snowredis.process import LOADING, VERSION

# takes the system's functions of time before a test replaces them, as freezegun does: loaded at the first id, it would
# keep those of the test for ever
from snowredis.process import clock as _clock  # noqa: F401
from snowredis.process.threads import locked

if TYPE_CHECKING:
    # "as": they are exported, which type checkers do not see from __all__ below
    from snowredis import embedded as embedded
    from snowredis import readers as readers
    from snowredis import testing as testing
    from snowredis.connection import aconnect as aconnect
    from snowredis.connection import connect as connect
    from snowredis.core.layout import Layout as Layout
    from snowredis.core.layout import Parts as Parts
    from snowredis.core.presets import layouts as layouts
    from snowredis.core.text import decode as decode
    from snowredis.core.text import encode as encode
    from snowredis.core.text import parse as parse
    from snowredis.kinds.base import IdGenerator as IdGenerator
    from snowredis.kinds.lookup import generator as generator
    from snowredis.monitor.lease import Lease as Lease
    from snowredis.monitor.pool import PoolInfo as PoolInfo
    from snowredis.process.sigterm import close_on_sigterm as close_on_sigterm
    from snowredis.process_generator import anext_id as anext_id
    from snowredis.process_generator import anext_ids as anext_ids
    from snowredis.process_generator import close as close
    from snowredis.process_generator import configure as configure
    from snowredis.process_generator import next_id as next_id
    from snowredis.process_generator import next_ids as next_ids
    from snowredis.process_generator import preload as preload
    from snowredis.snowflake.generator import SnowflakeGenerator as SnowflakeGenerator
    from snowredis.snowflake.ids.fast_path import IMPLEMENTATION as IMPLEMENTATION
    from snowredis.snowflake.lease.held import OwnLease as OwnLease
    from snowredis.worker_pool import WorkerPool as WorkerPool


__version__ = VERSION

# module -> its public names; it is loaded at the first use of one
_NAMES_OF = {
    "connection": ("aconnect", "connect"),
    "core.layout": ("Layout", "Parts"),
    "core.presets": ("layouts",),
    "core.text": ("decode", "encode", "parse"),
    "kinds.base": ("IdGenerator",),
    "kinds.lookup": ("generator",),
    "monitor.lease": ("Lease",),
    "monitor.pool": ("PoolInfo",),
    "process.sigterm": ("close_on_sigterm",),
    "process_generator": ("anext_id", "anext_ids", "close", "configure", "next_id", "next_ids", "preload"),
    "snowflake.ids.fast_path": ("IMPLEMENTATION",),
    "snowflake.generator": ("SnowflakeGenerator",),
    "snowflake.lease.held": ("OwnLease",),
    "worker_pool": ("WorkerPool",),
}
_MODULE_OF = {name: f"snowredis.{module}" for module, names in _NAMES_OF.items() for name in names}
_MODULES = ("embedded", "readers", "testing")

__all__ = ["__version__", *_MODULE_OF, *_MODULES, *errors.__all__]  # noqa: PLE0604 - all of them are names


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF and name not in _MODULES:
        raise AttributeError(f"module 'snowredis' has no attribute {name!r}")
    globals()[name] = value = locked(LOADING, _load, name)
    return value


def _load(name: str) -> Any:
    import importlib

    module = importlib.import_module(_MODULE_OF.get(name, f"snowredis.{name}"))
    return getattr(module, name) if name in _MODULE_OF else module


def __dir__() -> list[str]:
    return sorted(__all__)
