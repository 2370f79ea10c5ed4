"""Fields that are cloned, copied and derived deconstruct as the original does, and an object is pickled."""

import copy
import pickle

from shop.models import Invoice, Order, Reference, Tag

from snowredis.integrations.django import SnowflakeField


class Own(SnowflakeField):
    pass


assert Own().deconstruct()[1] == f"{__name__}.Own"
for model in (Invoice, Order, Reference):
    for field in model._meta.local_fields:
        assert field.clone().deconstruct()[1:] == copy.deepcopy(field).deconstruct()[1:]
tag = pickle.loads(pickle.dumps(Tag()))
assert tag.pk > 0
assert tag._meta.pk is Tag._meta.pk
