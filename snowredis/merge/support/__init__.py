"""Statements that each kind of database needs so that its keys can be changed: one module each, one interface."""

from __future__ import annotations

import sqlalchemy as sa

from snowredis.merge.support.base import Support
from snowredis.merge.support.mysql import MySQL
from snowredis.merge.support.postgresql import PostgreSQL
from snowredis.merge.support.sqlite import SQLite

__all__ = ["Support", "support_of"]

_KINDS: dict[str, type[Support]] = {
    "sqlite": SQLite,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
    "mariadb": MySQL,
}


def support_of(engine: sa.Engine) -> Support:
    """Return what the kind of database of *engine* needs."""
    return _KINDS[engine.dialect.name](engine.dialect)
