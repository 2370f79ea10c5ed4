"""A process with a worker id: prints an id, and keeps its lease until its stdin is closed.

python tests/web/dashboard_worker.py URL POOL LABEL
"""

import sys

import snowredis

if __name__ == "__main__":
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], label=sys.argv[3], ttl=3)
    print(ids.next_id(), flush=True)
    sys.stdin.read()
