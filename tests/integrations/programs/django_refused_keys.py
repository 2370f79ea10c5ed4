"""Validate primary keys that are ids, and some that are none."""

from django.core.exceptions import ValidationError
from shop.models import Order

for good in (1, 2**63 - 1, "249734652741287936"):
    Order(pk=good).full_clean()
for bad in (0, -1, 2**63, 2.5e17, True, "12a", "0x1"):
    try:
        Order(pk=bad).full_clean()
    except ValidationError as error:
        assert "id" in error.message_dict, error
    else:
        raise AssertionError(bad)
