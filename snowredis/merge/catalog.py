"""Queries of the catalogs, which are in sql/KIND.sql: each begins with a line of its name."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

import sqlalchemy as sa


@functools.cache
def catalog_query(kind: str, name: str) -> sa.TextClause:
    """Return the query *name* for a kind of database."""
    path = f"sql/{'mysql' if kind == 'mariadb' else kind}.sql"
    text = files("snowredis.merge").joinpath(path).read_text(encoding="utf-8")
    queries = dict(re.findall(r"^-- (\w+): .*\n([^;]+);", text, re.MULTILINE))
    return sa.text(queries[name])
