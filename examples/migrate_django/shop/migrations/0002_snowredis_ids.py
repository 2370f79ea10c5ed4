"""Ids of snowredis for orders.

On a table in use a person has taken the steps before, with `snowredis migrate`, and this migration finds nothing left
to do. On a new database, or a small one, it takes all of them. Django only notes that the field is another.
"""

from django.conf import settings
from django.db import migrations

from snowredis import Layout
from snowredis.integrations.django import SnowflakeField
from snowredis.merge.databases import open_database
from snowredis.merge.migrate import Migration as Ids


def take_all_steps(apps, schema_editor):
    Ids(open_database(settings.DATABASE_URL), "shop_order", "id").take_all_steps(Layout())


class Migration(migrations.Migration):
    # the steps use connections of their own
    atomic = False
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField("Order", "id", SnowflakeField(primary_key=True, serialize=False))
            ],
            database_operations=[migrations.RunPython(take_all_steps)],
        )
    ]
