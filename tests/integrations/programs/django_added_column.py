"""A column that was added is null in the two rows of before, and is filled in a new row."""

import django

django.setup()

from shop.models import Tag

assert [tag.code for tag in Tag.objects.all()] == [None, None]
assert Tag.objects.create().code > 0
