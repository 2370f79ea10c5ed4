"""The command run in this process, without the user's own settings; and two databases to merge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import environment, offline  # noqa: F401 - fixtures
from tests.support.statements import execute


def statements_of(text: str) -> list[str]:
    """Divide *text* at its lines of "--", or where it has none, at semicolons."""
    parts = text.split("\n--\n") if "\n--\n" in text else text.split(";")
    return [part.strip().replace("%", "%%") for part in parts if part.strip()]


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Callable[..., tuple[str, str]]:
    """Make two databases of a kind: with the statements of both, then those of each, divided by a line of "--"."""

    def make(kind: str, both: str, own: str = "") -> tuple[str, str]:
        server = request.getfixturevalue(f"{kind}_server")
        of_kept, _, of_changed = own.partition("\n--\n")
        urls = server.new_database(), server.new_database()
        for url, more in ((urls[0], of_kept), (urls[1], of_changed)):
            execute(url, *statements_of(both), *statements_of(more))
        return urls

    return make
