"""The command run in this process, without the user's own settings; and two databases to merge."""

import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.cli.conftest import environment, offline  # noqa: F401 - fixtures
from tests.support.statements import Tables, create_tables, execute

Cli = Callable[..., Any]
Two = Callable[..., tuple[str, str]]


def empty(_: str) -> tuple[str, ...]:
    return ()


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Two:
    """Make two databases of a kind. Statements before the tables, and after those of the second: with semicolons."""

    def make(kind: str, tables: Tables = MappingProxyType({}), before: str = "", second: str = "") -> tuple[str, str]:
        server = request.getfixturevalue(f"{kind}_server")
        urls = server.new_database(), server.new_database()
        for url, side, after in zip(urls, "AB", ("", second), strict=True):
            execute(url, *filter(None, before.split(";")))
            create_tables(url, tables, side)
            execute(url, *filter(None, after.split(";")))
        return urls

    return make


@pytest.fixture
def drafted(two: Two, offline: Cli) -> Callable[..., str]:  # noqa: F811
    """Return the draft of a map for two databases, with arguments as two() has them."""
    return lambda *arguments: str(offline("merge", "draft", *two(*arguments), code=0).out)


@pytest.fixture
def merging(offline: Cli, tmp_path: Path) -> Cli:  # noqa: F811
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
