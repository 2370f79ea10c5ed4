"""Check the links of Markdown pages inside a checkout: each file exists, and each anchor is a heading of its page."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors.index import slugify, unique_slug

__all__ = ["Link", "all_pages", "anchors_of", "broken_links", "links_in", "slugify"]

ROOT = Path(__file__).parents[2]
# pages whose links are checked
PAGES = ("README.md", "CHANGELOG.md", "docs/**/*.md")


class Link(NamedTuple):
    """A link of a page: its text and its target, as a file of the checkout and an anchor; "" for no anchor."""

    text: str
    file: Path
    anchor: str


def all_pages() -> list[Path]:
    """Return all pages, sorted."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def broken_links(pages: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each link in *pages* that leads nowhere."""
    for page in pages:
        for link in links_in(page):
            where = f"{page.relative_to(ROOT)}: [{link.text}]"
            if not link.file.exists():
                yield f"{where}: there is no file {link.file}"
            elif link.anchor and link.anchor not in anchors_of(link.file):
                yield f"{where}: {link.file.name} has no heading for #{link.anchor}"


def links_in(page: Path) -> Iterator[Link]:
    """Yield the links and images of a page that lead to files of the checkout."""
    tokens = list(_inline_tokens(page))
    for place, token in enumerate(tokens):
        target = str(token.attrs.get("href") or token.attrs.get("src") or "")
        url = urlsplit(target)
        if not target or url.scheme or url.netloc:
            continue
        file = (page.parent / unquote(url.path)).resolve() if url.path else page
        text = token.content or "".join(after.content for after in tokens[place + 1 : place + 3])
        yield Link(text, file, unquote(url.fragment))


@functools.cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, made as forges and MyST make them."""
    tokens = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    headings = [
        "".join(child.content for child in tokens[place + 1].children or ())
        for place, token in enumerate(tokens)
        if token.type == "heading_open"
    ]
    anchors: set[str] = set()
    for heading in headings:
        anchors.add(unique_slug(slugify(heading), anchors))
    return frozenset(anchors)


def _inline_tokens(page: Path) -> Iterator[Token]:
    text = page.read_text("utf-8")
    # links in tables, which CommonMark has not; entries of toctrees are checked by Sphinx
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield from token.children or ()
    for source in re.findall(r"<img [^>]*src=\"([^\"]+)\"", text):
        yield Token("image", "img", 0, attrs={"src": source})
