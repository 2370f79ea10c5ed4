"""Numbers that start again each hour, day, month or year of a time zone, written with the date: "INV-20261122-000042".

    from snowredis.dated import DatedGenerator

    invoices = DatedGenerator("invoices", "redis://localhost:6379/0", zone="Europe/Berlin")
    invoices.create()           # once, by the person who introduces them
    invoices.next_id()          # 20261122-000001

periods.py is the calendar, number_format.py the texts; store.py runs the script in lua/, generator.py the rest.
transaction.py is something else: numbers without gaps, from a table of your database, in your transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snowredis.dated.errors import PeriodClosed, PeriodExhausted, TagDiffers
from snowredis.dated.generator import DatedGenerator

if TYPE_CHECKING:
    from snowredis.dated.transaction import TransactionNumbers

__all__ = ["DatedGenerator", "PeriodClosed", "PeriodExhausted", "TagDiffers", "TransactionNumbers"]


def __getattr__(name: str) -> Any:
    if name == "TransactionNumbers":
        # it needs SQLAlchemy
        from snowredis.dated.transaction import TransactionNumbers

        return TransactionNumbers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
