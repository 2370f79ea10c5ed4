"""Text of the documentation that is made from the code. It stands in the pages, and a test compares it.

`scripts/docs.py --write` writes it again: what stands between a line `<!-- generated: NAME -->` and `<!-- end -->`.
Everything returns Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from scripts._docs import api, commands, events, layouts, loaded, metrics, settings

# name in a page's line `<!-- generated: NAME ARGUMENT... -->` -> function that returns the text
GENERATED: dict[str, Callable[..., str]] = {
    "api": api.api,
    "commands": commands.all_commands,
    "exit-codes": commands.exit_codes,
    "event-kinds": events.kinds,
    "event-example": events.example,
    "json-records": events.records,
    "layouts": layouts.presets,
    "pool-metrics": metrics.of_pools,
    "process-metrics": metrics.of_processes,
    "segment-metrics": metrics.of_segments,
    "service-metrics": metrics.of_the_service,
    "loaded-code": loaded.what_runs,
    "settings": settings.of_connect,
    "number-settings": settings.of_numbers,
    "service-settings": settings.of_the_service,
}
_PART = re.compile(r"^<!-- generated: ([a-z-]+)((?: \S+)*) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts of a page, in order."""
    return [found[1] for found in _PART.finditer(text)]


def written(text: str) -> str:
    """Return the text of a page with its generated parts made again."""
    return _PART.sub(_part, text)


def _part(found: re.Match[str]) -> str:
    name, arguments = found[1], found[2].split()
    return f"<!-- generated: {' '.join((name, *arguments))} -->\n\n{GENERATED[name](*arguments)}\n\n<!-- end -->"
