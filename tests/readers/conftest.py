"""A database with a table of orders, whose fence has a short lag."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.readers.storm import make_table
from tests.support.databases import DatabaseServer

LAG_S = 0.3


@pytest.fixture
def engine(postgresql_server: DatabaseServer) -> Iterator[sa.Engine]:
    made = sa.create_engine(postgresql_server.new_database())
    make_table(made, lag_ms=round(LAG_S * 1000))
    yield made
    made.dispose()
