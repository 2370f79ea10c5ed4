"""Wait for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], what: str = "it", limit_s: float = 10.0) -> Any:
    """Poll until *condition* holds; what it answered."""
    deadline_s = time.monotonic() + limit_s
    while not (answer := condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come true in {limit_s} s"
        time.sleep(0.01)
    return answer
