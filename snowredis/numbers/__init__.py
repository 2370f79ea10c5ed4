"""Numbers of business tags, such as invoice numbers, that Redis hands out.

    import snowredis
    from snowredis.numbers import DatedGenerator, create_tag

    create_tag("redis://localhost:6379/0", "invoices")      # once: a person says that it is new
    invoices = snowredis.generator("segment", url="redis://localhost:6379/0", tag="invoices")
    invoices.next_id()          # 1, 2, 3, …

    invoices = DatedGenerator("invoices", "redis://localhost:6379/0", zone="Europe/Berlin")
    invoices.create()           # once, by the person who introduces them
    invoices.next_id()          # 20261122-000001

Segments are prefetched in the background. Dated numbers start again each hour, day, month or year of a time zone.
transaction.py is something else: numbers without gaps, from a table of your database, in your transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowredis.numbers.administration import (
        DatedInfo,
        NumbersAlarm,
        TagInfo,
        change_tag,
        create_tag,
        delete_dated,
        delete_tag,
        open_dated,
        open_tag,
        show_dated,
        show_tag,
    )
    from snowredis.numbers.dated import DatedGenerator
    from snowredis.numbers.errors import NumbersBroken, NumbersClosed, NumbersDiffer, NumbersExhausted
    from snowredis.numbers.segments import SegmentGenerator
    from snowredis.numbers.transaction import TransactionNumbers

# module -> its names. Loaded at the first use: redis-py takes long to load, and transaction.py needs SQLAlchemy
_NAMES = {
    "administration": "DatedInfo NumbersAlarm TagInfo change_tag create_tag delete_dated delete_tag open_dated "
    "open_tag show_dated show_tag",
    "dated": "DatedGenerator",
    "errors": "NumbersBroken NumbersClosed NumbersDiffer NumbersExhausted",
    "segments": "SegmentGenerator",
    "transaction": "TransactionNumbers",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "DatedGenerator",
    "DatedInfo",
    "NumbersAlarm",
    "NumbersBroken",
    "NumbersClosed",
    "NumbersDiffer",
    "NumbersExhausted",
    "SegmentGenerator",
    "TagInfo",
    "TransactionNumbers",
    "change_tag",
    "create_tag",
    "delete_dated",
    "delete_tag",
    "open_dated",
    "open_tag",
    "show_dated",
    "show_tag",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
