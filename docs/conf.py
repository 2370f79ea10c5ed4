"""The site of the documentation, for Sphinx. Build it with scripts/docs.py.

Pages are Markdown (MyST), so that a forge shows them as they are. A diagram in mermaid is replaced with its picture.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts._docs import diagrams  # noqa: E402
from snowredis import __version__  # noqa: E402

project = "snowredis"
release = version = __version__
# no year: the same sources make the same site
copyright = "the snowredis authors"  # noqa: A001 - Sphinx names it so

extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"snowredis {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# for assistants: facts and links, at the root of the site
html_extra_path = ["llms.txt"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
# code in single backquotes
default_role = "literal"
pygments_style = "tango"
pygments_dark_style = "github-dark"

# links to headings work as on a forge
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# `$ ` and `>>> ` are not copied
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

# scripts/docs.py --external checks links to other hosts
linkcheck_timeout = 20
linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1)"]


def setup(app: Any) -> None:
    """Replace diagrams when a page is read, and name its language."""

    def on_read(_app: Any, page: str, source: list[str]) -> None:
        source[0] = diagrams.with_pictures(source[0], ROOT / "docs" / f"{page}.md")

    def on_page(_app: Any, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
        if page.startswith("zh/"):
            # so that browsers choose Chinese fonts
            context["language"] = "zh-CN"

    app.connect("source-read", on_read)
    app.connect("html-page-context", on_page)
    # rights in Redis, in docs/how-to/monitoring.md
    app.add_lexer("acl", TextLexer)
