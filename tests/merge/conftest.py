"""The command run in this process, without the user's own settings; and two databases to merge."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import environment, offline  # noqa: F401 - fixtures
from tests.support.statements import execute


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Callable[..., tuple[str, str]]:
    """Make two databases of a kind: with statements of both, then those of each, divided by semicolons."""

    def make(kind: str, both: str, first: str = "", second: str = "") -> tuple[str, str]:
        server = request.getfixturevalue(f"{kind}_server")
        urls = server.new_database(), server.new_database()
        for url, more in zip(urls, (first, second), strict=True):
            execute(url, *(part for part in f"{both};{more}".split(";") if part.strip()))
        return urls

    return make


@pytest.fixture
def merging(offline: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:  # noqa: F811
    """Draft a map, replace some of its lines, and run it; return the result of the command."""

    def run(
        urls: tuple[str, str], *edits: tuple[str, str], options: tuple[str, ...] = (), code: int | None = None
    ) -> Any:
        drafted = offline("merge", "draft", *urls, code=0)
        text = drafted.out.replace("reviewed = false", "reviewed = true")
        for old, new in edits:
            assert old in text, f"{old} is not in\n{text}"
            text = text.replace(old, new)
        path = tmp_path / "game.map"
        path.write_text(text)
        return offline("merge", "run", str(path), *urls, *options, code=code)

    return run


def schema_of(draft: str) -> str:
    """Return the checksum of the columns that a draft has."""
    found = re.search(r'^schema = "(\w+)"', draft, re.MULTILINE)
    assert found
    return found[1]
