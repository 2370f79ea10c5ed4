"""Proxy in front of a Redis that delays each reply. Arguments: socket, ms. Prints its port; ends with its stdin."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.chaos.proxy import Proxy

socket, delay_ms = sys.argv[1:]
proxy = Proxy(Path(socket))
proxy.start()
proxy.set("delay", float(delay_ms) / 1000)
print(proxy.port, flush=True)
sys.stdin.read()
# its connections are of no interest any more
os._exit(0)
