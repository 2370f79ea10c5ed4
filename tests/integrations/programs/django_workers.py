"""Insert a row and show the workers of the pool, of which this process is one."""

import io
import json

from django.core.management import call_command
from shop.models import Tag

Tag.objects.create()
out = io.StringIO()
call_command("snowredis_workers", "--json", stdout=out)
(worker,) = json.loads(out.getvalue())["leases"]
assert worker["label"] == "django web", worker
call_command("snowredis_workers")
