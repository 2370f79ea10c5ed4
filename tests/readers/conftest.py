"""Fixtures: the kinds of databases that have the fence."""

from __future__ import annotations

import pytest

from tests.support.databases import DatabaseServer


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> DatabaseServer:
    running: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return running
