"""Make numbers of two tags until it is killed, and record each before it could be used.

Arguments: URL, file, max_rate of the second tag. The file gets pairs of int64: index of the tag, number; one
beside it the last error.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from pathlib import Path

from snowredis.errors import SnowredisError
from snowredis.numbers.opening import open_generator

url, path, max_rate = sys.argv[1:]
settings = {"step": 500, "max_step": 2000, "failover_slack": 0}
tags = [
    open_generator(url, tag="word", **settings),
    open_generator(url, tag="rate", max_rate=int(max_rate), **settings),
]
record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
size = 1
while True:
    refused = 0
    for index, ids in enumerate(tags):
        try:
            numbers = ids.next_ids(size)
        except SnowredisError as error:
            refused += 1
            Path(path).with_suffix(".error").write_text(str(error))
            continue
        os.write(record, array("q", (value for number in numbers for value in (index, number))))
    size = size % 97 + 1
    time.sleep(0.05 if refused else 0.002)
