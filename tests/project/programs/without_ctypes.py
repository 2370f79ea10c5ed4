"""Make ids in a Python that was built without libffi, and in a child of it. Arguments: url, pool."""

import os
import sys

sys.modules["_ctypes"] = None

import snowredis
from snowredis.monitor.checks import check_crash_records

with snowredis.connect(sys.argv[1], pool=sys.argv[2]) as ids:
    first = ids.next_id()
    if os.fork() == 0:
        assert ids.decode(ids.next_id()).worker != ids.decode(first).worker
        ids.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert check_crash_records().level == "warning"
