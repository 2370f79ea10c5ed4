"""Ids of snowredis for orders.

On a table in use a person has taken the steps before, with `snowredis migrate`, and this revision finds nothing left to
do. On a new database, or a small one, it takes all of them.
"""

import os

from alembic import op

from snowredis import Layout
from snowredis.merge.databases import open_database
from snowredis.merge.migrate import Migration

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # the steps use connections of their own
    with op.get_context().autocommit_block():
        Migration(open_database(os.environ["DATABASE_URL"]), "orders", "id").take_all_steps(Layout())


def downgrade() -> None:
    raise NotImplementedError("there is no way back after 'snowredis migrate finish'; before it: rollback")
