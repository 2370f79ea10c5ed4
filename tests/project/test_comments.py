"""Comments are sentences or name a thing: none begins as if it hung on the code below it."""

import re
from collections.abc import Iterator

from tests.support.programs import ROOT

MARKS = {".c": "/*", ".css": "/*", ".js": "//", ".lua": "--", ".tla": "\\*"}
HASH = {"", ".cfg", ".py", ".sh", ".toml", ".yaml", ".yml"}
FRAGMENT = "of|not|and|or|but"


def fragments(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line with a comment that begins with a fragment, unless it continues a comment."""
    begins = re.compile(rf"(?:^|\s){re.escape(mark)} ?(?:{FRAGMENT})\b", re.IGNORECASE)
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if begins.search(line) and not before.lstrip().startswith(mark):
            yield number, line.strip()
        before = line


def test_no_comment_begins_with_a_fragment() -> None:
    folders = ("docs", "examples", "scripts", "snowredis", "tests")
    found: dict[str, str] = {}
    for path in [ROOT / "pyproject.toml", *(path for name in folders for path in (ROOT / name).rglob("*"))]:
        mark = "#" if path.suffix in HASH else MARKS.get(path.suffix)
        if mark and path.is_file():
            found |= {f"{path.name}:{number}": line for number, line in fragments(path.read_text("utf-8"), mark)}
    assert found == {}, "say it as a sentence of its own"
