"""Insert rows with another pool in the settings for a while."""

from django.test import override_settings
from shop.models import Tag

from snowredis.process_generator import process_generator
from snowredis.testing import memory_pool

Tag.objects.create()
with override_settings(SNOWREDIS={"url": memory_pool(), "pool": "other"}):
    Tag.objects.create()
    assert process_generator().pool == "other"
Tag.objects.create()
assert process_generator().pool == "shop"
