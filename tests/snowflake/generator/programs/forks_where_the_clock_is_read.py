"""Fork at each reading of the clock in an operation, and print how many there are."""

import os
import sys

from tests.snowflake.generator.programs.forking_clock import play

file = os.open(sys.argv[3], os.O_RDWR | os.O_CREAT | os.O_APPEND)
reading = 1
while play(sys.argv[4], reading, file):
    reading += 1
made = os.pread(file, 1 << 20, 0).split()
assert len(made) == len(set(made)), (len(made), len(set(made)))
print(reading)
