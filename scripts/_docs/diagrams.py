"""Diagrams in mermaid, which a forge draws by itself; the site shows pictures, which scripts/pictures.py draws.

The name of a picture contains a hash of its source, so that a changed diagram has no picture until it is drawn again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs/images"
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def diagrams_in(text: str) -> Iterator[str]:
    """Yield the sources of the diagrams in a page."""
    yield from _DIAGRAM.findall(text)


def picture_of(diagram: str) -> Path:
    """Return the file that holds the picture of *diagram*, if it was drawn."""
    return IMAGES / f"diagram-{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def with_pictures(text: str, page: Path) -> str:
    """Return the text of *page* with pictures in place of its diagrams; without a picture, the source remains."""

    def picture(match: re.Match[str]) -> str:
        file = picture_of(match[1])
        if not file.exists():
            return f"```text\n{match[1]}```"
        title = _HEADING.findall(text[: match.start()])[-1]
        return f"![{title}: a diagram]({os.path.relpath(file, page.parent)})"

    return _DIAGRAM.sub(picture, text)
