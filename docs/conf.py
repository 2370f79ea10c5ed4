"""The site of the documentation, for Sphinx. Build it with scripts/docs.py.

Pages are Markdown (MyST), so that a forge shows them as they are. A line ``<!-- generated: NAME -->`` in a page is
replaced with text that scripts/_docs makes from the code; a diagram in mermaid is replaced with its picture.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# widths and colors of --help do not depend on the terminal
os.environ.update(COLUMNS="100", NO_COLOR="1", LANG="C.UTF-8")

from scripts._docs import fill_in  # noqa: E402
from snowredis import __version__  # noqa: E402

project = "snowredis"
release = version = __version__
# no year: the same sources make the same site
copyright = "the snowredis authors"  # noqa: A001 - Sphinx names it so

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
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

# one argument a line in long signatures
maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
autodoc_inherit_docstrings = False
napoleon_custom_sections = [
    ("Blocks", "returns_style"),
    ("Source", "returns_style"),
    ("Rarely needed", "params_style"),
]
napoleon_use_rtype = False
napoleon_use_ivar = True
# types of other packages have no page here; each reference to a name of snowredis must have one, but for internal types
nitpick_ignore_regex = [
    ("py:.*", r"(?!snowredis\.).*"),
    ("py:.*", r"snowredis\.\w+\..*"),
]
# scripts/docs.py --external checks links to other hosts
linkcheck_timeout = 20
linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1)"]


def setup(app: Any) -> None:
    """Fill in the generated parts of a page when it is read."""

    def on_read(_app: Any, page: str, source: list[str]) -> None:
        source[0] = fill_in(source[0], ROOT / "docs" / f"{page}.md")

    def on_property(_app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
        if what == "property":
            # napoleon takes what stands before a colon in the first line for a type
            lines.insert(0, "")

    def on_docstring(_app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
        if what == "module":
            # an indented part is code
            lines[:] = re.sub(r"\n\n(?=    \S)(.*\n(?:    .*|\n)*)", "\n\n::\n\n\\1", "\n".join(lines)).split("\n")

    def on_page(_app: Any, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
        if page.startswith("zh/"):
            # so that browsers choose Chinese fonts
            context["language"] = "zh-CN"

    app.connect("source-read", on_read)
    app.connect("html-page-context", on_page)
    app.connect("autodoc-process-docstring", on_docstring)
    # before napoleon
    app.connect("autodoc-process-docstring", on_property, priority=400)
    # rights in Redis, in docs/how-to/monitoring.md
    app.add_lexer("acl", TextLexer)
