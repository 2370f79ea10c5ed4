"""Make numbers of a tag until it is killed, and record each before it could be used.

Arguments: URL, file. The file gets int64 numbers; one beside it the last error.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from pathlib import Path

from snowredis.errors import SnowredisError
from snowredis.numbers.segments import open_generator

url, path = sys.argv[1:]
ids = open_generator(url, tag="word", step=500, max_step=2000)
record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
size = 1
while True:
    try:
        os.write(record, array("q", ids.next_ids(size)))
    except SnowredisError as error:
        Path(path).with_suffix(".error").write_text(str(error))
        time.sleep(0.05)
    size = size % 97 + 1
    time.sleep(0.002)
