"""Whole numbers of any type, such as numpy's, as an int."""

from __future__ import annotations

import operator
from typing import Any


def as_int(value: Any) -> int:
    """Return a whole number of any type as an int. Raises TypeError, also for a bool."""
    if isinstance(value, bool):
        raise TypeError("a bool is not a number")
    return operator.index(value)
