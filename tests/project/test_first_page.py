"""A stranger finds the answer to each of the questions asked most with two clicks from the first page at most."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, TRANSLATED

pytest.importorskip("markdown_it")

from scripts._docs.links import Link, links_in, slugify

FIRST = ROOT / "docs/index.md"
# the question -> where its answer is, and words of the answer there
ANSWERS = {
    "deploy on Kubernetes": ("how-to/deploy.md", "kubernetes", ("readinessProbe", "rollingUpdate")),
    "Redis died": ("how-to/redis-unavailable.md", "time-line", ("LeaseExpired", "LeaseExpired")),
    "pool full": ("how-to/troubleshooting.md", "the-pool-fills-up", ("snowredis workers", "ttl")),
    "which layout": ("reference/layouts.md", "how-to-choose", ("worker ids", "js-safe")),
    "existing table": ("how-to/migrate.md", "from-auto-increment", ("BIGINT", "bigint")),
    "upgrade": ("how-to/upgrade.md", "the-version-of-snowredis", ("restart", "format")),
    "celery": ("how-to/integrations.md", "celery", ("setup(app", "Prefork")),
    "tests without Redis": ("how-to/develop.md", "unit-tests-no-redis", ("memory_pool", "snowredis_ids")),
    "what does LeaseExpired mean": ("reference/errors.md", "leaseexpired", ("reservation", "Try again")),
    "two shards are merged": ("how-to/merge.md", "", ("#COLUMN",)),
    "is it fast": ("explanation/performance.md", "", ("ns", "ids")),
}


@functools.cache
def pages_and_anchors(page: Path) -> set[tuple[Path, str]]:
    """Return where the links of a page lead; a page can be read from its top, so also without the anchor."""
    links = [link for link in links_in(page) if link.file.suffix == ".md"]
    return {place for link in links for place in ((link.file, link.anchor), (link.file, ""))}


def section_of(link: Link) -> str:
    """Return the text under the heading that a link leads to, down to the next heading of its level or above."""
    lines = link.file.read_text("utf-8").splitlines()
    if not link.anchor:
        return "\n".join(lines)
    at = next(i for i, line in enumerate(lines) if line.startswith("#") and slugify(line.lstrip("# ")) == link.anchor)
    level = len(lines[at]) - len(lines[at].lstrip("#"))
    in_code, text = False, []
    for line in lines[at + 1 :]:
        in_code ^= line.startswith("```")
        if not in_code and line.startswith("#") and len(line) - len(line.lstrip("#")) <= level:
            break
        text.append(line)
    return "\n".join(text)


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_two_clicks_away_at_most(question: str) -> None:
    page, anchor, words = ANSWERS[question]
    target = (ROOT / "docs" / page, anchor)
    one_click = pages_and_anchors(FIRST)
    two_clicks = {place for first, _ in one_click for place in pages_and_anchors(first)}
    assert target in one_click | two_clicks
    text = section_of(Link("", *target))
    for word in words:
        assert word in text, word


def test_the_first_page_links_to_every_page() -> None:
    linked = {file for file, _ in pages_and_anchors(FIRST)}
    english = {path for name, path in PAGES.items() if name not in TRANSLATED}
    assert english - linked <= {FIRST, ROOT / "README.md"}
    assert (FIRST, "") in pages_and_anchors(ROOT / "README.md")
