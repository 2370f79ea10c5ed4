"""The pages of the documentation, and the code in them."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.programs import ROOT

# English pages and their translations
PAGES = {str(path.relative_to(ROOT)): path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
TRANSLATED = {name: path for name, path in PAGES.items() if name.startswith("docs/zh/")}
_FENCE = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# between two commands of one line
_SEPARATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "(", ")"}


class Block(NamedTuple):
    """A fenced block of a page. *not_run* is the reason why it cannot be run, in a comment above it; else empty."""

    name: str
    language: str
    text: str
    not_run: str


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = PAGES[page].read_text("utf-8")
    return [
        Block(f"{page}:{text.count(chr(10), 0, match.start(3)) + 1}", match[2], match[3], match[1] or "")
        for match in _FENCE.finditer(text)
    ]


def commands_of(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command after a prompt, without variables in front of it."""
    for line in re.sub(r"\\\n", " ", block.text).splitlines():
        if not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line[2:], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _SEPARATORS:
                words += [word] if words or "=" not in word else []
                continue
            if words:
                yield words
            words = []
