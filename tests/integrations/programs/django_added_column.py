"""A column that is added is null in the two rows of before, and is filled in a new row."""

from django.core.management import call_command
from django.db import connection
from shop.models import Tag

with connection.cursor() as cursor:
    cursor.execute("INSERT INTO shop_tag (id) VALUES (1), (2)")
call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)
assert [tag.code for tag in Tag.objects.all()] == [None, None]
assert Tag.objects.create().code > 0
call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
