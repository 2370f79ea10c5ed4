"""Open every page of the built site at the width of a phone: no page may scroll sideways.

Tables and code that are wider scroll inside their own box. Needs Chromium.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.web.chromium import PROGRAM, chromium

# CSS pixels of a common phone
WIDTH, HEIGHT = 390, 844
# what reaches beyond the right edge and is in no box that scrolls
_TOO_WIDE = """
    [...document.querySelectorAll("body *")].filter(element => {
        if (element.getBoundingClientRect().right <= innerWidth + 1) return false
        for (let box = element; box; box = box.parentElement) {
            const style = getComputedStyle(box)
            if (style.overflowX !== "visible" || style.position === "fixed") return false
        }
        return true
    }).slice(0, 3).map(element => element.outerHTML.slice(0, 100))
"""


def has_browser() -> bool:
    """Return True if there is a Chromium to open pages with."""
    return PROGRAM is not None


def too_wide(site: Path) -> Iterator[str]:
    """Yield a line for each page of *site* that scrolls sideways on a phone."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as page:
        page.size(WIDTH, HEIGHT, phone=True)
        for path in sorted(site.rglob("*.html")):
            page.go(path.as_uri())
            page.wait(f"location.href === {path.as_uri()!r} && document.readyState === 'complete'")
            width = page.evaluate("document.scrollingElement.scrollWidth")
            if width > WIDTH:
                widest = page.evaluate(_TOO_WIDE)
                yield f"{path.relative_to(site)} is {width} px wide on a phone of {WIDTH} px: {widest}"
