"""Numbers of business tags, such as invoice numbers, that Redis hands out.

    import snowredis
    from snowredis.numbers import DatedGenerator, create_tag

    create_tag("redis://localhost:6379/0", "invoices")      # once: a person says that it is new
    invoices = snowredis.generator("segment", url="redis://localhost:6379/0", tag="invoices")
    invoices.next_id()          # 1, 2, 3, …

    create_tag("redis://localhost:6379/0", "bills", period="day", zone="Europe/Berlin")
    bills = DatedGenerator("bills", "redis://localhost:6379/0", zone="Europe/Berlin")
    bills.next_id()             # 20261122-000001

Segments are prefetched in the background. Dated numbers start again each hour, day, month or year of a time zone.
transaction.py is something else: numbers without gaps, from a table of your database, in your transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowredis.numbers.administration import TagInfo as TagInfo
    from snowredis.numbers.administration import create_tag as create_tag
    from snowredis.numbers.administration import delete_tag as delete_tag
    from snowredis.numbers.administration import open_tag as open_tag
    from snowredis.numbers.administration import show_tag as show_tag
    from snowredis.numbers.administration import take_shard_number as take_shard_number
    from snowredis.numbers.dated import DatedGenerator as DatedGenerator
    from snowredis.numbers.protocol import NumbersClosed as NumbersClosed
    from snowredis.numbers.protocol import NumbersExhausted as NumbersExhausted
    from snowredis.numbers.segments import SegmentGenerator as SegmentGenerator
    from snowredis.numbers.transaction import TransactionNumbers as TransactionNumbers

# module -> its names. Loaded at the first use: redis-py takes long to load, and transaction.py needs SQLAlchemy
_NAMES = {
    "administration": "TagInfo create_tag delete_tag open_tag show_tag take_shard_number",
    "dated": "DatedGenerator",
    "protocol": "NumbersClosed NumbersExhausted",
    "segments": "SegmentGenerator",
    "transaction": "TransactionNumbers",
}


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
