"""Text of the documentation that is made from the code, so that it cannot differ from it.

docs/conf.py calls fill_in() for each page. Everything returns Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from scripts._docs import commands, diagrams, events, layouts, loaded, lua, metrics, settings

# name in a page's line `<!-- generated: NAME -->` -> function that returns the text
GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands.all_commands,
    "exit-codes": commands.exit_codes,
    "event-kinds": events.kinds,
    "event-example": events.example,
    "json-records": events.records,
    "layouts": layouts.presets,
    "lua-scripts": lua.of_leases,
    "lua-numbers": lua.of_numbers,
    "pool-metrics": metrics.of_pools,
    "process-metrics": metrics.of_processes,
    "segment-metrics": metrics.of_segments,
    "service-metrics": metrics.of_the_service,
    "loaded-code": loaded.what_runs,
    "settings": settings.of_connect,
    "number-settings": settings.of_numbers,
    "service-settings": settings.of_the_service,
}
_MARKER = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def fill_in(text: str, page: Path) -> str:
    """Return the text of *page* with its generated parts, and pictures in place of diagrams."""
    return diagrams.with_pictures(_MARKER.sub(lambda marker: GENERATED[marker[1]](), text), page)
