"""Lists that pages of docs/ promise to be complete are complete."""

from __future__ import annotations

import re
from pathlib import Path

from snowredis import errors

DOCS = Path(__file__).parents[2] / "docs"


def test_each_error_has_a_section_and_a_row_in_the_table() -> None:
    text = (DOCS / "how-to/troubleshooting.md").read_text("utf-8")
    names = set(errors.__all__) - {"SnowredisError"}
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == names
    assert set(re.findall(r"^\| \[`(\w+)`\]\(#\w+\) ", text, re.MULTILINE)) == names
    assert [link for name, link in re.findall(r"\[`(\w+)`\]\(#(\w+)\)", text) if link != name.lower()] == []
