"""Make the first id while the functions of the module time are replaced, as freezegun does. Arguments: url, pool."""

import sys
import time
from unittest import mock

import snowredis

LONG_AGO_S = 1_750_000_000

with (
    mock.patch.object(time, "time", return_value=float(LONG_AGO_S)),
    mock.patch.object(time, "time_ns", return_value=LONG_AGO_S * 10**9),
    mock.patch.object(time, "monotonic", return_value=1.0),
):
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
    made = [*ids.next_ids(5_000), ids.next_id()]
made.append(ids.next_id())
ids.close()
assert len(set(made)) == len(made)
assert all(abs(ids.decode(an_id).timestamp_ms / 1000 - time.time()) < 10 for an_id in made)
