"""Become a program that wants its two pipes at 3 and 4: pipes_at_3_and_4 READ WRITE PROGRAM [ARGUMENT ...]."""

import fcntl
import os
import sys

ends = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
for at, end in zip((3, 4), ends, strict=True):
    os.dup2(end, at)
os.execv(sys.argv[3], sys.argv[3:])
