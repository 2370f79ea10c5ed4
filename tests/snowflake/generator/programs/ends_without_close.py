"""End in the way that is asked for, without closing the generator."""

import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
ids.next_id()
if sys.argv[3] == "exit":
    sys.exit(0)
if sys.argv[3] == "del":
    del ids
if sys.argv[3] == "raise":
    raise RuntimeError
