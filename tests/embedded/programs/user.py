"""Use the embedded server in HOME_OF_TEST until a line comes in: user.py [forks]."""

import json
import os
import subprocess
import sys

from snowredis import embedded
from snowredis.embedded import is_ready

server = embedded.start(os.environ["HOME_OF_TEST"], linger_s=float(os.environ["LINGER_S"]))
child = 0
if sys.argv[1:] == ["forks"]:
    child = os.fork()
    if child:
        os._exit(0)
if sys.argv[1:] == ["execs"]:
    child = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL).pid
print(json.dumps([server.url, server.kind, server.fresh, is_ready(server.url), child]), flush=True)
sys.stdin.read()
