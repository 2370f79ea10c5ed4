"""Make ids until SIGTERM, whose handler closes the generator."""

import signal
import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])


def stop(number, frame):
    ids.close()
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
ids.next_id()
print("ready", flush=True)
while True:
    ids.next_id()
