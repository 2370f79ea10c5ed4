"""A stranger finds each page with one click from the first page."""

import pytest

from tests.support.pages import PAGES, TRANSLATED
from tests.support.programs import ROOT

pytest.importorskip("markdown_it")

from scripts._docs.links import links_in


def test_the_first_page_links_to_every_page() -> None:
    first, readme = ROOT / "docs/index.md", ROOT / "README.md"
    linked = {link.file for link in links_in(first)}
    english = {path for name, path in PAGES.items() if name not in TRANSLATED}
    assert english - linked <= {first, readme}
    assert first in {link.file for link in links_in(readme)}
