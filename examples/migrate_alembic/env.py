"""Alembic's environment: the database of DATABASE_URL, and the models."""

from __future__ import annotations

import os

from alembic import context
from models import Base
from sqlalchemy import create_engine

from snowredis.integrations.sqlalchemy import render_item

engine = create_engine(os.environ["DATABASE_URL"])
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_item=render_item,
        # the journal of `snowredis migrate` is no model's table
        include_name=lambda name, kind, _: kind != "table" or name != "snowredis_migrations",
    )
    with context.begin_transaction():
        context.run_migrations()
